"""The text forms of moments, segments, key ranges and cuts of a history.

    | what      | written                                                                                    |
    |-----------|--------------------------------------------------------------------------------------------|
    | moment    | milliseconds since 1970, 2026-11-21T17:00:00Z, 2026-11-21, or an age such as "24h ago"     |
    |           | by the clock of the store                                                                  |
    | segment   | 3@1: number 3, created in epoch 1                                                          |
    | number    | 3@1=120: an offset or a size of a segment                                                  |
    | key range | 0.0:0.5: from the first key up to, but not including, the second                           |
    | cut       | {"3@1": 120, "4@2": -1}, or {"cut": ...} around it, as `cuts --head` prints it; or its file  |
    | place     | a cut, also as pairs: 3@1=120 4@2=-1; a moment; head; or tail                              |

Functions that parse raise ValueError with a text for the user.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from accel.errors import InvalidArgument
from accel.history.rules.values import TIME_MS_END, parse_segment, segment_text
from accel.rendering import Column, Fields, word
from accel.units import milliseconds, parse_time

if TYPE_CHECKING:
    from accel.history.rules.segments import SegmentRecord
    from accel.history.store import Stream
    from accel.streams.segment_source import SegmentSource


MOMENT_MS_MAX: Final = TIME_MS_END - 1
"""The last millisecond that a history accepts, in the year 5138."""

OFFSET_MAX: Final = 2**63 - 1

_AGO = " ago"
_DAY_MS = 86_400_000
_NUMBER = re.compile(r"-?[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Age:
    """A moment before now. Now is the store's time, so the moment is known when the store is open. Immutable.

    Args:
        milliseconds: from the moment to now.
    """

    milliseconds: int


Moment: TypeAlias = int | Age
"""Milliseconds since 1970, or an age."""


def moment_ms(moment: Moment, now_ms: Callable[[], int]) -> int:
    """A moment in milliseconds since 1970.

    Args:
        moment: as it was parsed.
        now_ms: returns the store's time, milliseconds since 1970; called for an age only.

    Raises:
        InvalidArgument: an age from before 1970.
    """
    if not isinstance(moment, Age):
        return moment
    found_ms = now_ms() - moment.milliseconds
    if found_ms < 0:
        days = moment.milliseconds / _DAY_MS
        raise InvalidArgument(f"expected a moment from 1970 to 5138, found one that is {days:.1f} days ago")
    return found_ms


def given_ms(moment: Moment | None, now_ms: Callable[[], int]) -> int | None:
    """As `moment_ms`; None if no moment was given."""
    return None if moment is None else moment_ms(moment, now_ms)


def parse_moment(text: str) -> Moment:
    """Milliseconds since 1970, or an age.

    >>> parse_moment("1800000000500"), parse_moment("2027-01-15T08:00:00.500Z"), parse_moment("1970-01-01 00:01")
    (1800000000500, 1800000000500, 60000)
    >>> parse_moment("1h30m ago")
    Age(milliseconds=5400000)

    Raises:
        ValueError: no moment, or one before 1970 or after 5138.
    """
    if text.isascii() and text.isdigit():
        found_ms = int(text)
    elif text.endswith(_AGO):
        age_seconds = parse_time(text.removesuffix(_AGO))
        if age_seconds * 1000 <= MOMENT_MS_MAX:
            return Age(milliseconds(age_seconds))
        found_ms = -1
    else:
        found_ms = _from_iso(text)
    if not 0 <= found_ms <= MOMENT_MS_MAX:
        raise ValueError(f"expected a moment from 1970 to 5138, found {text!r}")
    return found_ms


def moment_ms_text(time_ms: int) -> str:
    """A moment by the millisecond, as UTC; `parse_moment` reads it.

    >>> moment_ms_text(1_800_000_000_500)
    '2027-01-15T08:00:00.500Z'
    """
    if not 0 <= time_ms <= MOMENT_MS_MAX:
        return str(time_ms)
    seconds, rest = divmod(time_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03}Z"


def parse_number(text: str) -> tuple[int, int]:
    """A segment and a number that belongs to it.

    >>> parse_number("3@0=-1")
    (3, -1)

    Raises:
        ValueError: anything else, or a number that no offset can have.
    """
    segment, equals, number = text.partition("=")
    if not equals:
        raise ValueError(f"expected a segment and a number, such as 3@1=120, found {text!r}")
    if not _NUMBER.fullmatch(number):
        raise ValueError(f"expected a whole number after {segment}=, found {number!r}")
    return parse_segment(segment), _checked(int(number))


def parse_range(text: str) -> tuple[float, float]:
    """A key range; a scale checks whether its bounds fit.

    >>> parse_range("0.25:0.5")
    (0.25, 0.5)

    Raises:
        ValueError: not two numbers.
    """
    try:
        start, end = map(float, text.split(":"))
    except ValueError as error:
        raise ValueError(f"expected a key range such as 0.0:0.5, found {text!r}") from error
    if not (math.isfinite(start) and math.isfinite(end)):
        raise ValueError(f"expected keys from 0 to 1, found {text!r}")
    return start, end


def read_cut(text: str) -> dict[int, int]:
    """A cut from a file; ``text`` is its path, or the JSON itself.

    Raises:
        ValueError: it cannot be read, or is not a cut.
    """
    try:
        content = json.loads(text if text.startswith("{") else Path(text).read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"expected a JSON file with a cut, found {text!r}: {error}") from error
    cut = content.get("cut", content.get("position", content)) if isinstance(content, dict) else content
    if not isinstance(cut, dict) or not all(type(offset) is int for offset in cut.values()):
        raise ValueError(f'expected offsets by segment in {text!r}, such as {{"3@1": 120}}')
    return {parse_segment(name): _checked(offset) for name, offset in cut.items()}


HEAD: Final = "head"
TAIL: Final = "tail"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a stream that the user named.

    Args:
        at: a cut, by segment id; a moment; `HEAD` or `TAIL`.
    """

    at: dict[int, int] | Moment | str

    @property
    def needs_data(self) -> bool:
        """Whether events are read to find the place."""
        return isinstance(self.at, int | Age) or self.at == TAIL

    def cut(self, stream: Stream, source: SegmentSource | None = None) -> dict[int, int]:
        """The cut that is at this place now.

        Args:
            stream: the stream.
            source: reads its events, if `needs_data`.

        Raises:
            InvalidArgument: a moment that is more than 5 minutes from now: what follows it is not known.
            AccelError: something could not be read.
        """
        from accel.streams.segment_source import cut_at  # noqa: PLC0415 - few commands need it

        if isinstance(self.at, dict):
            return self.at
        if self.at == HEAD or source is None:
            return dict(stream.head())
        if not isinstance(self.at, int | Age):
            return cut_at(stream, source, None)
        store = stream.parts.store
        return cut_at(stream, source, store.time_ms("the time of a place", moment_ms(self.at, store.now_ms)))


def parse_place(text: str) -> Place:
    """A place in a stream.

    >>> parse_place("tail"), parse_place("0@0=120 1@0=7"), parse_place("1970-01-01 00:01")
    (Place(at='tail'), Place(at={0: 120, 1: 7}), Place(at=60000))

    Raises:
        ValueError: the text is none of these.
    """
    if text in {HEAD, TAIL}:
        return Place(text)
    if text.startswith("{") or _is_file(text) or "=" in text:
        return Place(parse_cut(text))
    try:
        return Place(parse_moment(text))
    except ValueError as error:
        cut = "a cut (a JSON file, or offsets such as '0@0=5 1@0=7')"
        raise ValueError(f"expected {cut}, a moment such as '1h ago', head or tail, found {text!r}") from error


def parse_cut(text: str) -> dict[int, int]:
    """A cut: JSON, a file with JSON, or offsets by segment.

    >>> parse_cut("0@0=120 1@0=7"), parse_cut('{"0@0": 5}')
    ({0: 120, 1: 7}, {0: 5})

    Raises:
        ValueError: neither.
    """
    if text.startswith("{") or _is_file(text):
        return read_cut(text)
    numbers = [parse_number(part) for part in text.replace(",", " ").split()]
    cut = dict(numbers)
    if not numbers or len(cut) < len(numbers):
        raise ValueError(
            f"expected a JSON file, or offsets of each segment once, such as '0@0=5 1@0=7', found {text!r}"
        )
    return cut


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # longer than a file name can be
        return False


def numbers_by_segment(numbers: Mapping[int, int]) -> dict[str, int]:
    """A cut, or sizes, in the form for machines that `read_cut` reads."""
    return {segment_text(segment_id): value for segment_id, value in numbers.items()}


def cut_text(cut: Mapping[int, int]) -> str:
    """A cut in the form for people.

    >>> cut_text({3: 120, 4: -1})
    '3@0=120 4@0=-1'
    """
    offsets = (f"{segment_text(segment_id)}={offset}" for segment_id, offset in cut.items())
    return " ".join(offsets) or "the very beginning"


def _from_iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        expected = "milliseconds since 1970, a moment such as 2026-11-21T17:00:00Z, or an age such as '24h ago'"
        raise ValueError(f"expected {expected}, found {text!r}") from error
    known = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(known.timestamp() * 1000)


def _checked(number: int) -> int:
    if abs(number) > OFFSET_MAX:
        raise ValueError(f"expected at most {OFFSET_MAX}, found {number}")
    return number


SHOWN_SEGMENTS_MAX: Final = 8
"""Segments of an epoch in one line of text; JSON has all of them."""


def segment_data(segment: SegmentRecord, **more: Any) -> dict[str, Any]:
    """A segment in the form for machines."""
    return {
        "segment": str(segment),
        "id": segment.id,
        "key_start": segment.key_start,
        "key_end": segment.key_end,
        "creation_time_ms": segment.creation_time_ms,
        **more,
    }


def keys_text(segment: Fields) -> str:
    """The keys of a segment.

    >>> keys_text({"key_start": 0.25, "key_end": 0.5})
    '[0.25, 0.5)'
    """
    return f"[{segment['key_start']}, {segment['key_end']})"


SEGMENT_COLUMNS: Final[tuple[Column[Fields], ...]] = (word("segment", "segment"), word("keys", keys_text))
CREATED: Final[Column[Fields]] = word("created", lambda segment: moment_ms_text(segment["creation_time_ms"]))


def segments_text(segments: Sequence[Fields]) -> str:
    """The first few of the given segments, and their keys."""
    shown = ", ".join(f"{each['segment']} {keys_text(each)}" for each in segments[:SHOWN_SEGMENTS_MAX])
    more = len(segments) - SHOWN_SEGMENTS_MAX
    return f"{shown}, and {more} more" if more > 0 else shown
