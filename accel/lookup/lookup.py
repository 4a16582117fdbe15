"""A lookup: a search of an image, and once more with a newer image if this one is not enough.

Old images. An image can be behind the bucket: a compaction deletes sources while readers still hold the list that names
them, and a node opens streams and commits objects that this image does not have yet. So a lookup may search twice:

- A *listed object is gone*: all picks are discarded, a newer image is asked for, and the search runs once more. If the
  newest image still lists the object and the answer depends on it, it is lost, and that is an error.
- The answer *comes out short* (it ends at a hole), or the image *does not have the stream*: before that is believed, a
  newer image is asked for once, at most once in `refresh_seconds`.

What a read does not wait for, the whole answer, is here too: it takes objects as they are picked (`Picks`).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TypeVar

from accel.errors import ObjectLost, UnknownStream
from accel.image import MetadataImage, is_newer
from accel.lookup.answer import Answer, Ending, FoundObject, Request
from accel.lookup.explain import Trace
from accel.lookup.search import search
from accel.lookup.steps import ImageStale, Inputs, LookupStep, NeedImage, RefreshFailed, Sent

R = TypeVar("R")

Asking = Generator[LookupStep, Sent, R]
"""A part of a lookup that may ask for a newer image, too."""


class Picks:
    """The objects that a lookup has picked so far, for one who does not wait for its answer. One thread at a time.

    A lookup that begins again drops what was not taken, and goes on behind what was: that holds what it holds, whatever
    a newer image says of it.
    """

    def __init__(self) -> None:
        self._picked: list[FoundObject] = []
        self._taken = 0
        self._end: int | None = None

    def __len__(self) -> int:
        return len(self._picked)

    def add(self, found: FoundObject) -> None:
        """The lookup has picked it."""
        self._picked.append(found)

    def take(self, most: int) -> list[FoundObject]:
        """At most so many of what was picked and not taken yet, in order."""
        taken, self._picked = self._picked[:most], self._picked[most:]
        if taken:
            self._taken += len(taken)
            self._end = taken[-1].end
        return taken

    def begin(self, request: Request) -> Request:
        """What a search has to look for that begins, perhaps over again."""
        self._picked.clear()
        return request if self._end is None else replace(request, start=self._end, limit=request.limit - self._taken)


def lookup(
    request: Request,
    image: MetadataImage,
    inputs: Inputs,
    trace: Trace | None = None,
    picks: Picks | None = None,
) -> Asking[Answer]:
    """Find the objects of a request, with the newest image if this one is not enough.

    Args:
        request: what is asked.
        image: to begin with.
        inputs: what lookups share.
        trace: if given, is told what happens and why.
        picks: if given, is told of objects as they are picked.

    Raises (from the generator):
        InvalidRequest, InconsistentAnswer: as `search`.
        UnknownStream: retryable unless the image was the newest a moment ago.
        ObjectLost: an object that the newest image lists, and that the answer needs, does not exist.
        AccelError: an object that the answer needs could not be opened.
    """
    looked_again = False
    failed: RefreshFailed | None = None
    while True:
        if trace is not None:
            trace.begins(image.version)
        try:
            answer = yield from search(
                request if picks is None else picks.begin(request),
                image,
                inputs.index_cache,
                inputs.policy,
                hints=inputs.hints,
                trace=trace,
                tolerate_gone=looked_again,
                on_pick=None if picks is None else picks.add,
            )
        except ImageStale as stale:
            if looked_again:
                raise lost(stale.ref.object_id, stale.node_id, inputs, failed) from stale
            looked_again = True
            newer = yield from _newer(image)
            if isinstance(newer, RefreshFailed):
                failed = newer
            else:
                image = newer or image
            continue
        except UnknownStream as error:
            newer = yield from _newer_than_unknown(error, image, inputs, looked_again=looked_again)
            looked_again, image = True, newer
            continue
        if answer.ending is not Ending.HOLE or looked_again or not inputs.may_refresh():
            return answer
        newer = yield from _newer(image)
        if not isinstance(newer, MetadataImage):
            return answer
        looked_again, image = True, newer


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
