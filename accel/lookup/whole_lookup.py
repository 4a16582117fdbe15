"""A whole lookup: search, and search again where the image turns out to be old.

An image can be behind the bucket: a compaction deletes sources while readers still hold the list that names them, and
a node opens streams and commits objects that this image does not have yet. These rules keep answers right:

- A *listed object is gone*: all picks are discarded, a newer image is asked for, and the search runs once more. If the
  newest image still lists the object and the answer depends on it, it is lost, and that is an error.
- The answer *comes out short* (it ends at a hole), or the image *does not have the stream*: before that is believed, a
  newer image is asked for once, at most once in `refresh_seconds`.

Like the search this is a generator without I/O: it yields `Wanted` (objects to open) and `NeedImage`, and a driver, for
threads or for asyncio, answers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from accel.errors import ObjectLost, UnknownStream
from accel.image import MetadataImage
from accel.lookup.answer import Answer, Ending, Request
from accel.lookup.known import Hints, Knowledge
from accel.lookup.search import search
from accel.lookup.story import Story
from accel.lookup.wanted import ImageStale, SearchSent, Wanted
from accel.version import ImageVersion, is_newer
from loaders.plan import Policy


@dataclass(frozen=True, slots=True)
class NeedImage:
    """Please give an image newer than this version, without waiting for one, or None."""

    version: ImageVersion


@dataclass(frozen=True, slots=True)
class RefreshFailed:
    """Whether there is a newer image is not known: the source of images failed.

    Args:
        unconfirmed_seconds: how long ago the image at hand was last known to be the newest.
        reason: what went wrong, for people.
    """

    unconfirmed_seconds: float
    reason: str


Sent = SearchSent | MetadataImage | RefreshFailed
Steps = Generator[Wanted | NeedImage, Sent, Answer]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What all lookups of one accelerator share.

    Args:
        knowledge: index and filters.
        policy: which objects to open next.
        key_of: object id -> key, for errors.
        may_refresh: whether a lookup that found too little may ask for a newer image now.
        hints: snapshots that may be asked; None to do without.
    """

    knowledge: Knowledge
    policy: Policy
    key_of: Callable[[int], str]
    may_refresh: Callable[[], bool]
    hints: Hints | None = None


def lookup(request: Request, image: MetadataImage, inputs: Inputs, story: Story | None = None) -> Steps:
    """Find the objects of a request, with the newest image if this one is not enough.

    Raises (from the generator):
        InvalidRequest, InconsistentAnswer: as `search`.
        UnknownStream: retryable unless the image was the newest a moment ago.
        ObjectLost: an object that the newest image lists, and that the answer needs, does not exist.
        AccelError: an object that the answer needs could not be opened.
    """
    looked_again = False
    failed: RefreshFailed | None = None
    while True:
        if story is not None:
            story.begins(image.version)
        try:
            answer = yield from _search(request, image, inputs, story, tolerate_gone=looked_again)
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
) -> Generator[Wanted | NeedImage, Sent, MetadataImage]:
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


def _search(
    request: Request, image: MetadataImage, inputs: Inputs, story: Story | None, *, tolerate_gone: bool
) -> Generator[Wanted | NeedImage, Sent, Answer]:
    steps = search(
        request,
        image,
        inputs.knowledge,
        inputs.policy,
        hints=inputs.hints,
        story=story,
        tolerate_gone=tolerate_gone,
    )
    sent: SearchSent = None
    try:
        wanted = next(steps)
        while True:
            reply = yield wanted
            if isinstance(reply, MetadataImage | RefreshFailed):
                raise TypeError(f"expected what the wanted objects hold, found {type(reply).__name__}")
            sent = reply
            wanted = steps.send(sent)
    except StopIteration as stop:
        answer: Answer = stop.value
        return answer


def _newer(image: MetadataImage) -> Generator[Wanted | NeedImage, Sent, MetadataImage | RefreshFailed | None]:
    reply = yield NeedImage(image.version)
    if isinstance(reply, RefreshFailed):
        return reply
    return reply if isinstance(reply, MetadataImage) and is_newer(reply.version, image.version) else None
