"""The request and the answer of a lookup, and the check that every answer passes before it is returned."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from accel.errors import InconsistentAnswer, InvalidRequest, UnknownStream
from accel.image import OPEN_END, ImageVersion, MetadataImage, ObjectRef, StreamImage
from loaders.settings import plain_arguments, taker

checked_arguments: Final = plain_arguments(InvalidRequest)
"""A decorator of public classes and functions; see `loaders.settings`."""


class Kind(enum.Enum):
    """The kind of object that holds the offsets."""

    STREAM = "stream"
    """An object of this stream alone."""
    STREAM_SET = "stream_set"
    """An object of many streams."""


class Ending(enum.Enum):
    """The reason why an answer has no further objects."""

    LIMIT = "limit"
    """The requested number of objects is reached."""
    END = "end"
    """The requested end is reached."""
    HOLE = "hole"
    """No listed object holds the next offset: this image provably has no further contiguous objects."""
    PARTIAL = "partial"
    """The caller's limit of rounds or time was reached first; make a new request from `resume_offset`."""


class Request(Struct, frozen=True):
    """A request for the objects that hold offsets [start, end) of a stream.

    Args:
        stream_id: the stream.
        start: the first requested offset; the first object may begin before it.
        end: one past the last requested offset, or -1 for as far as there is data; the last object may end after it.
        limit: the maximum number of objects. A fetch of the production system asks for 4.
        max_fill_rounds: if given, the maximum number of rounds once the first object is found; the answer may
            then be partial.
    """

    stream_id: int
    start: int
    end: int = OPEN_END
    limit: int = 4
    max_fill_rounds: int | None = None


class FoundObject(NamedTuple):
    """An object that holds offsets [start, end) of the requested stream; never clipped to the request.

    `node_id` is the node whose list contains the object; None for a stream object.
    """

    kind: Kind
    ref: ObjectRef
    start: int
    end: int
    node_id: int | None = None

    @property
    def object_id(self) -> int:
        """The object's id."""
        return self.ref.object_id


class Unopened(Struct, frozen=True):
    """Objects of visited lists that a lookup did not open, by the reason, and the accuracy of filters.

    The sum of opened and unopened objects is the number of listed objects.

    Args:
        by_index: objects whose ranges were known, from the index or a snapshot.
        by_filter: objects that a filter, or the list's sketch, excluded.
        by_bounds: unknown objects that the answer did not depend on.
        filters_passed: objects that were opened in time, and that their filter had not excluded.
        filters_wrong: the number of these that lacked the stream: false positives.
    """

    by_index: int = 0
    by_filter: int = 0
    by_bounds: int = 0
    filters_passed: int = 0
    filters_wrong: int = 0


NONE_UNOPENED: Final = Unopened()


class Answer(Struct, frozen=True):
    """Objects that hold the requested offsets without a gap, in order.

    Args:
        request: the request.
        objects: in offset order; each starts at the end of the previous one.
        ending: why there are no more.
        resume_offset: the first offset not covered; the start of a next request.
        image_version: the image that the answer is correct for.
        rounds: the number of rounds of loading.
        objects_opened: the number of object indexes requested in these rounds.
        objects_listed: the number of objects in the lists of the visited nodes.
        unopened: why the other listed objects were not opened; not set for a lookup that opened nothing.
        stream_end: one past the last offset of the stream in this image, if the answer ends after all its data; None
            for another ending, and for a hole with data after it.
    """

    request: Request
    objects: tuple[FoundObject, ...]
    ending: Ending
    resume_offset: int
    image_version: ImageVersion
    rounds: int = 0
    objects_opened: int = 0
    objects_listed: int = 0
    unopened: Unopened = NONE_UNOPENED
    stream_end: int | None = None

    @property
    def is_beyond_end(self) -> bool:
        """Whether the request begins after the end of the stream; at its end it does not."""
        return self.stream_end is not None and self.request.start > self.stream_end

    @property
    def start_offset(self) -> int:
        """First offset covered; -1 if there is no object."""
        return self.objects[0].start if self.objects else -1

    @property
    def end_offset(self) -> int:
        """One past the last offset covered; -1 if there is no object."""
        return self.objects[-1].end if self.objects else -1

    @property
    def partial(self) -> bool:
        """Whether a limit of the caller ended the answer early."""
        return self.ending is Ending.PARTIAL

    @property
    def satisfies_fetch(self) -> bool:
        """Whether a waiting fetch is done: the limit or the end is reached, or the end was open."""
        return self.ending in (Ending.LIMIT, Ending.END) or (self.request.end == OPEN_END and not self.partial)


def check_request(request: Request, image: MetadataImage) -> StreamImage:
    """The stream of a request; refuses a request that cannot be answered from this image.

    Not refused: an empty range (its answer is the covering object), a start after the data (its answer is empty), and a
    limit of 0.

    Raises:
        InvalidRequest: negative stream, limit, start or number of rounds, an
            end before the start that is not -1, or a start below the stream's first kept offset.
        UnknownStream: a stream that the image does not have.
    """
    if request.limit < 0:
        raise InvalidRequest(f"expected a limit of at least 0, found {request.limit}")
    rounds = request.max_fill_rounds
    if rounds is not None and rounds < 0:
        raise InvalidRequest(f"expected max_fill_rounds of at least 0, or None for no bound, found {rounds}")
    if request.end != OPEN_END and request.start > request.end:
        raise InvalidRequest(f"expected an end of at least {request.start}, or -1 for an open one, found {request.end}")
    stream = image.streams.get(request.stream_id)
    if stream is None:
        raise UnknownStream(request.stream_id, str(image.version))
    if request.start < stream.start_offset:
        raise InvalidRequest(
            f"stream {request.stream_id}: expected a start of at least {stream.start_offset}, its first kept offset, "
            f"found {request.start}"
        )
    return stream


_TAKERS: Final = [
    (name, taker(name, annotation, InvalidRequest)) for name, annotation in Request.__annotations__.items()
]

plain_deadline: Final = taker("deadline_seconds", "TimeLimit", InvalidRequest)


def plain_request(request: Request) -> Request:
    """The request with plain numbers.

    Raises:
        InvalidRequest: no request, or an argument that is not an integer.
    """
    if not isinstance(request, Request):
        raise InvalidRequest(f"expected a Request, found {type(request).__name__}")
    return Request(*[take(getattr(request, name)) for name, take in _TAKERS])


class Span(Protocol):
    """Anything with a start and an end."""

    @property
    def start(self) -> int:
        """The first offset."""
        ...

    @property
    def end(self) -> int:
        """One past the last offset."""
        ...


def check_ranges(start: int, limit: int, ranges: Sequence[Span | None]) -> None:
    """Check an answer by itself: it does not exceed the limit, covers the start, and has no gap.

    Args:
        start: the requested start.
        limit: the requested limit.
        ranges: the range of the stream in each object, in order; None for an object that lacks the stream.

    Raises:
        InconsistentAnswer: one of these conditions is not met; or the limit is 0, and there is an object (a rule of
            the production system).
    """
    if limit == 0 and ranges:
        error = InconsistentAnswer(f"expected a limit of at least 1 where an object holds offset {start}, found 0")
        error.advice = "ask with a limit of at least 1; nothing is damaged"  # type: ignore[misc]  # in this case alone
        raise error
    if len(ranges) > limit:
        raise InconsistentAnswer(f"expected at most {limit} objects, found {len(ranges)}")
    reached = None
    for number, held in enumerate(ranges):
        if held is None:
            raise InconsistentAnswer(
                f"object {number} of the answer: expected it to hold the stream, found that it lacks it"
            )
        if held.end < held.start:
            raise InconsistentAnswer(
                f"object {number} of the answer: expected start <= end, found [{held.start}, {held.end})"
            )
        if reached is None and held.start > start:
            raise InconsistentAnswer(f"expected the first object to start at or before {start}, found {held.start}")
        if reached is not None and held.start != reached:
            raise InconsistentAnswer(
                f"object {number} of the answer: expected it to start at {reached}, found {held.start}"
            )
        reached = held.end
