"""A lookup: a search in the current image, and a second search in a newer image if the first may be outdated.

An image can be older than the bucket: a compaction deletes sources while readers still have the list that contains
them, and a node opens streams and commits objects that this image does not have yet. So a lookup may search twice:

- A *listed object does not exist*: all picks are discarded, a newer image is requested, and the search is repeated
  once. If the newest image still lists the object and the answer depends on it, the object is lost, which is an error.
- The answer *has no object*, and the offset was given up with a lost object: an error names the end of the hole.
- The answer *is short* (it ends at a hole), or the image *does not have the stream*: a newer image is requested first,
  at most once in `refresh_seconds`, or if a newer one was installed while the lookup ran.

A lookup begins with plain calls: `begin` returns the answer itself if memory proves all of it, as for most lookups of a
running broker. Only if it has to wait, it returns steps, which continue from there. A read does not wait for the whole
answer: it takes objects as they are picked (`Picks`).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from accel.errors import ObjectLost, OffsetsGivenUp, UnknownStream
from accel.image import MetadataImage, is_newer
from accel.lookup.answer import Answer, Ending, FoundObject, Request, check_request
from accel.lookup.search import Search
from accel.lookup.search_requests import ImageStale, Inputs, LookupStep, NeedImage, RefreshFailed, Sent

if TYPE_CHECKING:
    from accel.lookup.explain import Trace


R = TypeVar("R")

Asking = Generator[LookupStep, Sent, R]
"""A part of a lookup that may also request a newer image."""


class Picks:
    """The objects that a lookup has picked so far, for a read that does not wait for the answer. Threads: one.

    A lookup that searches again drops the picks that were not taken, and continues after the taken ones: the contents
    of a taken object are the same in every image.
    """

    def __init__(self) -> None:
        self._picked: list[FoundObject] = []
        self._taken_here = self._taken = 0
        self._end: int | None = None

    def __len__(self) -> int:
        return len(self._picked) - self._taken_here

    def take(self, most: int) -> list[FoundObject]:
        """Take the next picked objects, in order, at most this number."""
        taken = self._picked[self._taken_here : self._taken_here + most]
        if taken:
            self._taken_here += len(taken)
            self._taken += len(taken)
            self._end = taken[-1].end
        return taken

    def rest_of(self, request: Request) -> Request:
        """The part of the request after the taken objects."""
        return request if self._end is None else replace(request, start=self._end, limit=request.limit - self._taken)

    def follow(self, picked: list[FoundObject]) -> None:
        """Use this list, which a search appends its picks to, from now on."""
        self._picked, self._taken_here = picked, 0


def begin(
    request: Request,
    image: MetadataImage,
    inputs: Inputs,
    trace: Trace | None = None,
    picks: Picks | None = None,
) -> Answer | Asking[Answer]:
    """Find the objects of a request: returns the answer if memory proves all of it, else the steps of the lookup.

    The steps continue from the part that memory has proven. They may request the newest image if this one does not
    suffice.

    Raises (from the generator, too):
        InvalidRequest, InconsistentAnswer: as `search`.
        UnknownStream: retryable unless the image was just confirmed to be the newest.
        ObjectLost: an object that the newest image lists, and that the answer needs, does not exist.
        OffsetsGivenUp: no object holds the start any more; the one that did was given up.
        AccelError: an object that the answer needs could not be opened.

    Complexity: O(limit + log entries) for an answer from memory.
    """
    try:
        searching = _start(request, image, inputs, trace, picks)
    except UnknownStream as error:
        return _go_on(request, image, inputs, trace, picks, error)
    answer = searching.begin()
    if answer is None:
        return _go_on(request, image, inputs, trace, picks, searching)
    if answer.ending is Ending.HOLE and inputs.may_refresh(image.version):
        return _go_on(request, image, inputs, trace, picks, answer)
    return _unless_given_up(answer, image, picks)


def lookup(
    request: Request,
    image: MetadataImage,
    inputs: Inputs,
    trace: Trace | None = None,
    picks: Picks | None = None,
) -> Asking[Answer]:
    """As `begin`, always as steps; picked objects are added to `picks`, if it is given."""
    begun = begin(request, image, inputs, trace, picks)
    return begun if isinstance(begun, Answer) else (yield from begun)


def _start(
    request: Request,
    image: MetadataImage,
    inputs: Inputs,
    trace: Trace | None,
    picks: Picks | None,
    *,
    tolerate_gone: bool = False,
) -> Search:
    if trace is not None:
        trace.record_start(image.version)
    if picks is not None:
        request = picks.rest_of(request)
    stream = check_request(request, image)
    cache, policy, hints = inputs.index_cache, inputs.policy, inputs.hints
    started = Search(request, stream, image, cache, policy, hints=hints, trace=trace, tolerate_gone=tolerate_gone)
    if picks is not None:
        picks.follow(started.picked)
    return started


def _go_on(
    request: Request,
    image: MetadataImage,
    inputs: Inputs,
    trace: Trace | None,
    picks: Picks | None,
    begun: Search | Answer | UnknownStream | None,
) -> Asking[Answer]:
    """The steps of a lookup from this state of its first search on."""
    looked_again = False
    failed: RefreshFailed | None = None
    while True:
        try:
            searched = begun or _start(request, image, inputs, trace, picks, tolerate_gone=looked_again)
            answer = yield from _finish(searched)
        except ImageStale as stale:
            if looked_again:
                raise lost(stale.ref.object_id, stale.node_id, inputs, failed) from stale
            looked_again, begun = True, None
            newer = yield from _newer(image)
            if isinstance(newer, RefreshFailed):
                failed = newer
            else:
                image = newer or image
            continue
        except UnknownStream as error:
            newer = yield from newer_than_unknown(error, image, inputs, looked_again=looked_again)
            looked_again, image, begun = True, newer, None
            continue
        if answer.ending is not Ending.HOLE or looked_again or not inputs.may_refresh(image.version):
            return _unless_given_up(answer, image, picks)
        newer = yield from _newer(image)
        if not isinstance(newer, MetadataImage):
            return _unless_given_up(answer, image, picks)
        looked_again, image, begun = True, newer, None


def _unless_given_up(answer: Answer, image: MetadataImage, picks: Picks | None) -> Answer:
    """The answer; an error if it ends where an object was lost for good, and has no object, or a read has its picks."""
    if answer.ending is Ending.HOLE and (picks is not None or not answer.objects):
        stream_id, offset = answer.request.stream_id, answer.resume_offset
        for lost in image.streams[stream_id].given_up:
            if lost.start <= offset < lost.end:
                raise OffsetsGivenUp(stream_id, offset, lost.end, lost.object_id)
    return answer


def _finish(begun: Search | Answer | UnknownStream) -> Asking[Answer]:
    if isinstance(begun, UnknownStream):
        raise begun
    return begun if isinstance(begun, Answer) else (yield from begun.run())


def lost(object_id: int, node_id: int, inputs: Inputs, failed: RefreshFailed | None) -> ObjectLost:
    """The error for a listed object that does not exist; it contains the reason if no newer image was available."""
    unconfirmed = (None, "") if failed is None else (failed.unconfirmed_seconds, failed.reason)
    return ObjectLost(object_id, inputs.key_of(object_id), node_id, *unconfirmed)


def newer_than_unknown(
    error: UnknownStream, image: MetadataImage, inputs: Inputs, *, looked_again: bool
) -> Asking[MetadataImage]:
    """A newer image, which may have a stream that this image does not have.

    Raises:
        UnknownStream: there is no newer image, or it is not known whether there is one.
    """
    if looked_again:
        raise error  # the image is the result of the request just made
    if not inputs.may_refresh(image.version):
        raise unconfirmed(error, "a newer one was asked for a moment ago, and not again") from error
    newer = yield from _newer(image)
    if isinstance(newer, RefreshFailed):
        raise unconfirmed(error, f"a newer one could not be had: {newer.reason}") from error
    if newer is None:
        raise error
    return newer


def unconfirmed(error: UnknownStream, reason: str) -> UnknownStream:
    """The same error, for an image that may not be the newest for this reason."""
    return UnknownStream(error.stream_id, error.image_version, reason)


def _newer(image: MetadataImage) -> Asking[MetadataImage | RefreshFailed | None]:
    reply = yield NeedImage(image.version)
    if isinstance(reply, RefreshFailed):
        return reply
    return reply if isinstance(reply, MetadataImage) and is_newer(reply.version, image.version) else None
