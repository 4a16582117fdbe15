"""Lookups while an endpoint hangs: it accepts requests and answers none.

    hanging, refresh     100 lookups that memory answers while the source of images is asked for a newer one, and hangs;
                         the peer's source answers at once
    hanging, deadline    a lookup of 4 objects, the third of which hangs, with a deadline of 0.2 s; the peer sleeps for
                         that long, and both say that 2 objects are there
    hanging, others      100 lookups that memory answers while 64 requests for other objects hang; the peer has none

A request that hangs does so until the measuring is over. A ratio of 1 is as quick as without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Final

from accel import MetadataImage, ReadAccelerator, Settings
from accel.image_source import PolledImages
from accel.lookup.answer import Ending
from accel.system import SYSTEM
from benchmarks.harness import Comparison, interleave
from benchmarks.read_pipelined import LAYOUT, OFFSETS, STREAM_ID, list_image, written_objects
from loaders.store import ObjectStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall

OBJECTS: Final = 200
WARM: Final = 16
LOOKUPS: Final = 100
POLL_SECONDS: Final = 0.01
DEADLINE_SECONDS: Final = 0.2
HANGING_AT_ONCE: Final = 64
HANG_SECONDS_MAX: Final = 60.0
AS_QUICK_SHARE: Final = 0.8


def run(rounds: int = 7) -> list[Comparison]:
    """Lookups during a refresh that hangs, a GET that hangs, and 64 of them."""
    store, refs = written_objects(OBJECTS)
    image = list_image(refs)
    over = threading.Event()
    with ExitStack() as left:
        try:
            return [
                _compare_refresh(store, image, over, rounds, left),
                _compare_deadline(store, image, over, rounds, left),
                _compare_others(store, image, over, rounds, left),
            ]
        finally:
            over.set()  # before the accelerators are closed, which wait for what is under way


class _HangingStore(DecoratedStore):
    """Requests for objects from this number on hang."""

    def __init__(self, store: ObjectStore, first: int, over: threading.Event, *, to: int = OBJECTS) -> None:
        super().__init__(store)
        self._keys = {LAYOUT.object_key(each) for each in range(first, to)}
        self._over = over

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.key in self._keys:
            self._over.wait(HANG_SECONDS_MAX)
        return send()


def _compare_refresh(
    store: ObjectStore, image: MetadataImage, over: threading.Event, rounds: int, left: ExitStack
) -> Comparison:
    hangs = threading.Event()

    def fetch() -> MetadataImage:
        if hangs.is_set():
            over.wait(HANG_SECONDS_MAX)
        return image

    ours, peer = (_warm(store, image, each, left) for each in (fetch, lambda: image))
    hangs.set()
    timings = interleave(partial(_look_up_known, ours), partial(_look_up_known, peer), rounds=rounds)
    name = f"hanging: refresh, {LOOKUPS} lookups"
    return timings.compare(name, peer="a source that answers", unit="ms", goal=AS_QUICK_SHARE)


def _compare_deadline(
    store: ObjectStore, image: MetadataImage, over: threading.Event, rounds: int, left: ExitStack
) -> Comparison:
    def ours() -> list[int]:
        one = _accelerator(_HangingStore(store, 2, over, to=3), lambda: image, left)
        answer = one.get_objects(STREAM_ID, 0, limit=4, deadline_seconds=DEADLINE_SECONDS)
        if answer.ending is not Ending.PARTIAL:
            raise RuntimeError(f"expected a partial answer, found {answer.ending}")
        return [each.object_id for each in answer.objects]

    def peer() -> list[int]:
        SYSTEM.sleep(DEADLINE_SECONDS)
        return [0, 1]

    timings = interleave(ours, peer, rounds=rounds)
    name = f"hanging: a needed object, deadline of {DEADLINE_SECONDS} s"
    return timings.compare(name, peer="sleeps for as long", unit="ms", goal=AS_QUICK_SHARE)


def _compare_others(
    store: ObjectStore, image: MetadataImage, over: threading.Event, rounds: int, left: ExitStack
) -> Comparison:
    ours = _warm(_HangingStore(store, WARM * 2, over), image, lambda: image, left)
    peer = _warm(store, image, lambda: image, left)
    for start in range(HANGING_AT_ONCE // 8):
        offset = (OBJECTS - 1 - 8 * start) * OFFSETS
        ours.get_objects(STREAM_ID, offset, limit=1, deadline_seconds=0.0)
    timings = interleave(partial(_look_up_known, ours), partial(_look_up_known, peer), rounds=rounds)
    name = f"hanging: requests for others, {LOOKUPS} lookups"
    return timings.compare(name, peer="no request hangs", unit="ms", goal=AS_QUICK_SHARE)


def _look_up_known(one: ReadAccelerator) -> list[int]:
    """Lookups that memory answers; the first one is late enough for the source to be asked again."""
    SYSTEM.sleep(POLL_SECONDS)
    found = []
    for number in range(LOOKUPS):
        start = number % WARM * OFFSETS
        found += [each.object_id for each in one.get_objects(STREAM_ID, start, start + OFFSETS).objects]
    return found


def _warm(
    store: ObjectStore, image: MetadataImage, fetch: Callable[[], MetadataImage], left: ExitStack
) -> ReadAccelerator:
    one = _accelerator(store, fetch, left)
    if len(one.get_objects(STREAM_ID, 0, WARM * OFFSETS, WARM).objects) != WARM:
        raise RuntimeError(f"expected {WARM} objects of {image}")
    return one


def _accelerator(store: ObjectStore, fetch: Callable[[], MetadataImage], left: ExitStack) -> ReadAccelerator:
    source = PolledImages(fetch, timer=SYSTEM.timer, sleep=SYSTEM.sleep, poll_seconds=POLL_SECONDS)
    return left.enter_context(ReadAccelerator(source, store, settings=Settings(use_hints=False)))
