"""Merges on the store's side: it copies the data sections of the sources one after another into the output.

Only indexes, and what is too small to be copied, pass through here. A part that the store copies has at least 5 MiB, as
every part but the last must; smaller sections are read and joined, and where they do not fill a part of 5 MiB before a
large section they borrow its first bytes:

    sections   | 2 | 3 |      20      | 1 |
    parts      | read: 6   | copied: 19 | read: 1, index, footer |

The bytes that the store copies are not seen, so neither their blocks nor a checksum are checked: the format's readers
check what they read. What it saves is the data's way through this process, 100 % of it for large sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from loaders.merge_bands import Part, Span, check_whole
from loaders.merge_reading import Source
from loaders.merge_sending import OutputSender
from loaders.store import ObjectStore
from loaders.store.base import PART_SIZE_BYTES_MIN

COPY_SIZE_BYTES_MAX = 1 << 30
"""S3 copies at most 5 GiB into one part; smaller ones copy side by side."""


@dataclass(frozen=True, slots=True)
class SectionPart:
    """One part of an output made of whole sections.

    Args:
        spans: the bytes of it; several are read and joined.
        is_copied: whether the store copies it; then there is one span.
    """

    spans: tuple[Span, ...]
    is_copied: bool

    @property
    def size_bytes(self) -> int:
        """Of all spans."""
        return sum(span.end - span.start for span in self.spans)


def divide_sections(
    data_sizes: Sequence[int], *, part_size_bytes: int, part_size_bytes_min: int = PART_SIZE_BYTES_MIN
) -> list[SectionPart]:
    """How the sections become parts; the last one is never copied, for index and footer join it (it may be empty).

    Args:
        data_sizes: bytes of each source's data section, in order.
        part_size_bytes: what is read is sent once it has so many bytes.
        part_size_bytes_min: the least size of a part that is not the last.
    """
    least = max(part_size_bytes, part_size_bytes_min)
    divider = _Divider(least, part_size_bytes_min)
    for source, size_bytes in enumerate(data_sizes):
        divider.add(source, size_bytes)
    return [*divider.parts, SectionPart(tuple(divider.pending), is_copied=False)]


def send_sections(
    store: ObjectStore, sources: Sequence[Source], parts: Sequence[SectionPart], tail: bytes, sender: OutputSender
) -> int:
    """Send these parts as output 0, and give the bytes that the store copied.

    Raises:
        StoreError: a request failed; the sender has to take back what was sent.
    """
    copied_bytes = 0
    for number, part in enumerate(parts, start=1):
        is_last = number == len(parts)
        place = Part(0, number, 0, 0, part.size_bytes, is_last)
        if part.is_copied:
            sender.make_room(0)
            span = part.spans[0]
            sender.copy(place, sources[span.source].key, span.start, span.end)
            copied_bytes += part.size_bytes
        else:
            sender.make_room(part.size_bytes)
            bodies = [_read(store, sources[span.source], span) for span in part.spans]
            sender.send(place, b"".join([*bodies, tail] if is_last else bodies))
    return copied_bytes


class _Divider:
    """Goes through the sections and keeps what has to be read until it is a part. One thread at a time."""

    def __init__(self, least: int, part_size_bytes_min: int) -> None:
        self.parts: list[SectionPart] = []
        self.pending: list[Span] = []
        self._least = least
        self._minimum = part_size_bytes_min

    def add(self, source: int, size_bytes: int) -> None:
        waiting = sum(span.end - span.start for span in self.pending)
        borrowed = max(0, self._minimum - waiting) if waiting else 0
        if size_bytes - borrowed < self._minimum:
            self._wait(source, 0, size_bytes)
            if waiting + size_bytes >= self._least:
                self._read_pending()
            return
        self._wait(source, 0, borrowed)
        self._read_pending()
        count = -(-(size_bytes - borrowed) // COPY_SIZE_BYTES_MAX)
        cuts = [borrowed + (size_bytes - borrowed) * cut // count for cut in range(count + 1)]
        for start, end in pairwise(cuts):
            self.parts.append(SectionPart((Span(source, start, end),), is_copied=True))

    def _wait(self, source: int, start: int, end: int) -> None:
        if end > start:
            self.pending.append(Span(source, start, end))

    def _read_pending(self) -> None:
        if self.pending:
            self.parts.append(SectionPart(tuple(self.pending), is_copied=False))
            self.pending = []


def _read(store: ObjectStore, source: Source, span: Span) -> memoryview | bytes:
    if source.body is not None:
        return memoryview(source.body)[span.start : span.end]
    body = store.get_range(source.key, span.start, span.end).body
    check_whole(source, span, body)
    return body
