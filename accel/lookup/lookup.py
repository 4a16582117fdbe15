"""A lookup: a search of the image at hand, and of a newer one where the first cannot be the last word.

An image can be behind the bucket: a compaction deletes sources while readers still hold the list that names
them, and a node opens streams and commits objects that this image does not have yet. So a lookup may search twice:

- A *listed object is gone*: all picks are discarded, a newer image is asked for, and the search runs once more. If the
  newest image still lists the object and the answer depends on it, it is lost, and that is an error.
- The answer *comes out short* (it ends at a hole), or the image *does not have the stream*: before that is believed, a
  newer image is asked for once, at most once in `refresh_seconds`.

A lookup begins at once, in plain calls: `begin` gives the answer itself where memory proves all of it, as it does of
most lookups of a broker that runs. Only where something has to be waited for it gives steps, which go on from there.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from accel.errors import ObjectLost, UnknownStream
from accel.image import MetadataImage, is_newer
from accel.lookup.answer import Answer, Ending, Request, check_request
from accel.lookup.explain import Trace
from accel.lookup.search import Search
from accel.lookup.steps import ImageStale, Inputs, LookupStep, NeedImage, RefreshFailed, Sent

R = TypeVar("R")

Asking = Generator[LookupStep, Sent, R]
"""A part of a lookup that may ask for a newer image, too."""


def begin(
    request: Request, image: MetadataImage, inputs: Inputs, trace: Trace | None = None
) -> Answer | Asking[Answer]:
    """Find the objects of a request: the answer itself, if memory proves all of it, else the steps of the lookup.

    The steps go on from what memory has proven. They may ask for the newest image if this one is not enough.

    Raises (from the generator, too):
        InvalidRequest, InconsistentAnswer: as `search`.
        UnknownStream: retryable unless the image was the newest a moment ago.
        ObjectLost: an object that the newest image lists, and that the answer needs, does not exist.
        AccelError: an object that the answer needs could not be opened.

    Complexity: of an answer from memory O(limit + log entries).
    """
    try:
        searching = _start(request, image, inputs, trace)
    except UnknownStream as error:
        return _go_on(request, image, inputs, trace, error)
    answer = searching.begin()
    if answer is None:
        return _go_on(request, image, inputs, trace, searching)
    if answer.ending is Ending.HOLE and inputs.may_refresh():
        return _go_on(request, image, inputs, trace, answer)
    return answer


def lookup(request: Request, image: MetadataImage, inputs: Inputs, trace: Trace | None = None) -> Asking[Answer]:
    """As `begin`, always as steps."""
    begun = begin(request, image, inputs, trace)
    return begun if isinstance(begun, Answer) else (yield from begun)


def _start(
    request: Request, image: MetadataImage, inputs: Inputs, trace: Trace | None, *, tolerate_gone: bool = False
) -> Search:
    if trace is not None:
        trace.begins(image.version)
    stream = check_request(request, image)
    cache, policy, hints = inputs.index_cache, inputs.policy, inputs.hints
    return Search(request, stream, image, cache, policy, hints=hints, trace=trace, tolerate_gone=tolerate_gone)


def _go_on(
    request: Request,
    image: MetadataImage,
    inputs: Inputs,
    trace: Trace | None,
    begun: Search | Answer | UnknownStream | None,
) -> Asking[Answer]:
    """The steps of a lookup whose first search has come so far."""
    looked_again = False
    failed: RefreshFailed | None = None
    while True:
        try:
            searched = begun or _start(request, image, inputs, trace, tolerate_gone=looked_again)
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
            newer = yield from _newer_than_unknown(error, image, inputs, looked_again=looked_again)
            looked_again, image, begun = True, newer, None
            continue
        if answer.ending is not Ending.HOLE or looked_again or not inputs.may_refresh():
            return answer
        newer = yield from _newer(image)
        if not isinstance(newer, MetadataImage):
            return answer
        looked_again, image, begun = True, newer, None


def _finish(begun: Search | Answer | UnknownStream) -> Asking[Answer]:
    if isinstance(begun, UnknownStream):
        raise begun
    return begun if isinstance(begun, Answer) else (yield from begun.run())


def lost(object_id: int, node_id: int, inputs: Inputs, failed: RefreshFailed | None) -> ObjectLost:
    """The error of a listed object that is gone; it says so if a newer image could not be had."""
    unconfirmed = (None, "") if failed is None else (failed.unconfirmed_seconds, failed.reason)
    return ObjectLost(object_id, inputs.key_of(object_id), node_id, *unconfirmed)


def _newer_than_unknown(
    error: UnknownStream, image: MetadataImage, inputs: Inputs, *, looked_again: bool
) -> Asking[MetadataImage]:
    """An image that may have a stream which this one does not have.

    Raises:
        UnknownStream: there is none, or it is not known whether there is one.
    """
    if looked_again:
        raise error  # of an image that was asked for just now
    if not inputs.may_refresh():
        raise unconfirmed(error, "a newer one was asked for a moment ago, and not again") from error
    newer = yield from _newer(image)
    if isinstance(newer, RefreshFailed):
        raise unconfirmed(error, f"a newer one could not be had: {newer.reason}") from error
    if newer is None:
        raise error
    return newer


def unconfirmed(error: UnknownStream, reason: str) -> UnknownStream:
    """The same error of an image that may not be the newest, for this reason."""
    return UnknownStream(error.stream_id, error.image_version, reason)


def _newer(image: MetadataImage) -> Asking[MetadataImage | RefreshFailed | None]:
    reply = yield NeedImage(image.version)
    if isinstance(reply, RefreshFailed):
        return reply
    return reply if isinstance(reply, MetadataImage) and is_newer(reply.version, image.version) else None
