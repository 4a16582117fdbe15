"""The problems that a hint can have, and reads of its bytes that report them.

A hint saves requests, and no answer depends on it. So all problems have the same consequence: the lookup continues
without the hint. A problem is counted and never reaches a caller of lookups. Counters distinguish the kinds, since the
remedies differ:

    | kind    | cause                                                            | remedy                          |
    |---------|------------------------------------------------------------------|---------------------------------|
    | missing | no root: no hints were built for this node                       | build them                      |
    | corrupt | bytes contradict the format, a checksum, or themselves           | build them again                |
    | foreign | of another cluster, another node, or a newer release             | check prefixes; upgrade         |
    | unreadable | an older release wrote it, and pyarrow is not installed       | build them again                |
    | mixed   | an object differs in size from the one that the root names       | build them again, by one writer |
    | stale   | an object that the root names was replaced and deleted           | none: the root is read again    |
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from loaders.errors import AccelError, AccessDenied, KeyMissing, RangeInvalid
from loaders.store.base import Fetched, ObjectStore


class HintTrouble(StrEnum):
    """The kind of a problem; the text is the name of its counter."""

    MISSING = "missing"
    CORRUPT = "corrupt"
    FOREIGN = "foreign"
    UNREADABLE = "unreadable"
    MIXED = "mixed"
    STALE = "stale"


class HintProblem(Exception):
    """A hint that cannot be used. Internal, and no `AccelError`: the catcher continues without the hint.

    Args:
        kind: of the problem.
        key: of the hint.
        detail: what was expected, and what was found.
    """

    def __init__(self, kind: HintTrouble, key: str, detail: str) -> None:
        super().__init__(f"hint {key!r} is {kind}: {detail}")
        self.kind = kind
        self.key = key
        self.detail = detail

    def __reduce__(self) -> tuple[type[HintProblem], tuple[HintTrouble, str, str]]:
        return type(self), (self.kind, self.key, self.detail)


class ByteSpan(NamedTuple):
    """Bytes ``[start, end)`` of the object at a key: one ranged GET.

    Attributes:
        key: the object.
        start: first byte.
        end: one past the last byte.
        object_size_bytes: length of the object; an object of another length is another object.
        first: number of the first item (a row group, or an entry of a pack in the order of its plan) in the span.
        stop: one past the number of the last item.
    """

    key: str
    start: int
    end: int
    object_size_bytes: int
    first: int
    stop: int

    @property
    def size_bytes(self) -> int:
        """The number of bytes."""
        return self.end - self.start


def read_span(store: ObjectStore, span: ByteSpan) -> bytes:
    """Read the bytes of a span. One request.

    Raises:
        HintProblem: stale or mixed.
        StoreError: the request failed.
    """
    try:
        return checked_body(span, store.get_range(span.key, span.start, span.end))
    except (KeyMissing, AccessDenied, RangeInvalid) as error:
        raise span_problem(span, error) from error


def checked_body(span: ByteSpan, fetched: Fetched) -> bytes:
    """The body of a response to a request for the span, if it comes from the object that the root names.

    Raises:
        HintProblem: mixed.
    """
    if fetched.object_size_bytes != span.object_size_bytes or len(fetched.body) != span.size_bytes:
        expected = f"{span.size_bytes} of {span.object_size_bytes} bytes"
        found = f"{len(fetched.body)} of {fetched.object_size_bytes}"
        raise HintProblem(HintTrouble.MIXED, span.key, f"expected {expected}, found {found}")
    return fetched.body


def span_problem(span: ByteSpan, error: AccelError) -> HintProblem:
    """The problem for a failed read of the span: mixed if the object is shorter, else stale."""
    kind = HintTrouble.MIXED if isinstance(error, RangeInvalid) else HintTrouble.STALE
    return HintProblem(kind, span.key, str(error))
