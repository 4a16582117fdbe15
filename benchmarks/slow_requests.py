"""The time of reads against a reader with perfect knowledge, and with slow requests or a hanging endpoint.

Requests have the latencies of `LatencyModel` (half of them 15 ms, one in a hundred 100 ms), at default settings, so
with at most 64 at once. All reads begin cold. Both sides run alternately on the same objects, in threads, where
processor time counts, too; ours also caches indexes, and the peer does not.

    read_pipelined, lookup of 1,000   1,000 objects of a list of 5,000 in one lookup; the peer has their ids, and opens
                                      them all at once
    read_pipelined, read of 400       the records of 400 objects; the peer has the ids of these objects, opens all at
                                      once, and fetches the blocks of each as soon as it is open

    slow_get, unneeded                one of the objects that a round opens takes 3 s, and the answer does not need it;
                                      the peer has no slow object
    slow_get, needed                  the first request for the only object that the answer needs takes 3 s; the peer
                                      has no second requests, and waits. Both have opened 90 objects before

A ratio of 1 is as fast as perfect knowledge.

Last, lookups while an endpoint hangs, that is, accepts requests and does not answer them.

    hanging, refresh     100 lookups from memory while a refresh from the source of images hangs; the peer's source
                         answers at once
    hanging, deadline    a lookup of 4 objects, the third of which hangs, with a deadline of 0.2 s; the peer sleeps for
                         that time, and both return 2 objects
    hanging, others      100 lookups from memory while 64 requests for other objects hang; the peer has none

A request hangs until the measurement is over. A ratio of 1 is as fast as without a hanging request.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from accel import MetadataImage, ReadAccelerator, Settings, StaticImages
from accel.image_source import PolledImages
from accel.lookup.answer import Ending
from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.harness import Comparison, interleave
from loaders.format import FOOTER_SIZE_BYTES, RecordBatch, decode_block_bytes
from loaders.layout import ObjectLayout
from loaders.object_index import ObjectIndexLoader, OpenedObject, fetch_tail, open_fetched
from loaders.object_ref import ObjectRef
from loaders.object_writer import ObjectWriter
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import Answer as StoreAnswer
from loaders.store.decorated import DecoratedStore, StoreCall

STREAM_ID: Final = 7
NODE_ID: Final = 4
OBJECTS: Final = 5_000
SCANNED: Final = 1_000
READ: Final = 400
OFFSETS: Final = 10
CONNECTIONS: Final = 64
SLOW_SECONDS: Final = 3.0
SLOW_OBJECT: Final = 36
NEEDED_OBJECT: Final = 350
TIMED: Final = 90
PAYLOAD_BYTES: Final = 1000
SEED: Final = 20261122
UNNEEDED_SHARE: Final = 0.8
NEEDED_TIMES: Final = 10.0
LAYOUT = ObjectLayout()


def run(rounds: int = 7) -> list[Comparison]:
    """A lookup of many objects, and a read of many."""
    store, refs = written_objects(OBJECTS)
    image = list_image(refs)
    slow = _slow(store, SEED)
    return [
        _compare_lookups(slow, image, refs[:SCANNED], rounds),
        _compare_reads(slow, image, refs[:READ], rounds),
    ]


def run_slow_get(rounds: int = 7) -> list[Comparison]:
    """A lookup with a slow object that it does not need, and a lookup with a slow object that it needs."""
    store, refs = written_objects(400)
    return [_compare_unneeded(store, refs, rounds), _compare_needed(store, refs, rounds)]


def _compare_lookups(store: ObjectStore, image: MetadataImage, refs: list[ObjectRef], rounds: int) -> Comparison:
    def ours() -> list[int]:
        with _accelerator(store, image) as one:
            return [each.object_id for each in one.get_objects(STREAM_ID, 0, limit=len(refs)).objects]

    def peer() -> list[int]:
        with ThreadPoolExecutor(CONNECTIONS) as executor:
            return [each.ref.object_id for each in _opened(store, refs, executor)]

    timings = interleave(ours, peer, rounds=rounds)
    name = f"read_pipelined: lookup of {len(refs):,} objects, in threads"
    return timings.compare(name, peer="given the objects, opens them at once", unit="ms")


def _compare_reads(store: ObjectStore, image: MetadataImage, refs: list[ObjectRef], rounds: int) -> Comparison:
    end = len(refs) * OFFSETS

    def ours() -> list[int]:
        with _accelerator(store, image) as one:
            return [batch.base_offset for batch in one.read(STREAM_ID, 0, end)]

    def peer() -> list[int]:
        with ThreadPoolExecutor(CONNECTIONS) as executor:
            loads = [executor.submit(_read_one, store, ref) for ref in refs]
            return [batch.base_offset for load in loads for batch in load.result()]

    timings = interleave(ours, peer, rounds=rounds)
    name = f"read_pipelined: read of {len(refs):,} objects, in threads"
    return timings.compare(name, peer="given the objects, reads them at once", unit="ms")


def _compare_unneeded(store: ObjectStore, refs: list[ObjectRef], rounds: int) -> Comparison:
    image, start = list_image(refs), 5
    stuck = _Stuck(store, LAYOUT.object_key(SLOW_OBJECT))
    with ExitStack() as left:

        def look_up(of: ObjectStore) -> list[int]:
            one = left.enter_context(_accelerator(of, image, policy="load-all", use_hints=False))
            return [each.object_id for each in one.get_objects(STREAM_ID, start, start + OFFSETS).objects]

        timings = interleave(partial(look_up, _slow(stuck, SEED)), partial(look_up, _slow(store, SEED)), rounds=rounds)
    return timings.compare("slow_get: unneeded", peer="no slow object", unit="ms", goal=UNNEEDED_SHARE)


def _compare_needed(store: ObjectStore, refs: list[ObjectRef], rounds: int) -> Comparison:
    image = list_image(refs)
    with ExitStack() as left:

        def begin(hedge_percent: int) -> ReadAccelerator:
            slow = _Stuck(_slow(store, SEED), LAYOUT.object_key(NEEDED_OBJECT), times=1)
            one = left.enter_context(_accelerator(slow, image, hedge_percent=hedge_percent, use_hints=False))
            one.get_objects(STREAM_ID, 0, limit=TIMED)
            return one

        ready = {percent: [begin(percent) for _ in range(rounds + 1)] for percent in (5, 0)}

        def look_up(hedge_percent: int) -> list[int]:
            one = ready[hedge_percent].pop()
            return [each.object_id for each in one.get_objects(STREAM_ID, NEEDED_OBJECT * OFFSETS, limit=1).objects]

        timings = interleave(partial(look_up, 5), partial(look_up, 0), rounds=rounds)
    return timings.compare("slow_get: needed", peer="no second requests", unit="ms", goal=NEEDED_TIMES)


def _opened(store: ObjectStore, refs: list[ObjectRef], executor: ThreadPoolExecutor) -> Iterator[OpenedObject]:
    loader = ObjectIndexLoader(store, LAYOUT, executor)
    for load in [loader.open(NODE_ID, ref) for ref in refs]:
        yield load.result.result()


def _read_one(store: ObjectStore, ref: ObjectRef) -> list[RecordBatch]:
    key = LAYOUT.object_key(ref.object_id)
    opened = open_fetched(store, key, ref, fetch_tail(store, key, ref, ref.index_size_bytes + FOOTER_SIZE_BYTES))
    if opened is None:
        raise ValueError(f"expected an object with blocks of its own, found {ref}")
    row = opened.index.row(0)
    body = store.get_range(key, row.position, row.position + row.size_bytes).body
    return list(decode_block_bytes(body, row, key=key, object_size_bytes=ref.size_bytes))


def written_objects(count: int) -> tuple[MemoryStore, list[ObjectRef]]:
    """Objects 0, 1, 2, ... with one batch of the stream each, in the order of offsets."""
    store, refs = MemoryStore(), []
    for number in range(count):
        with ObjectWriter(store, LAYOUT, number) as writer:
            writer.write(STREAM_ID, [RecordBatch(STREAM_ID, 1, number * OFFSETS, OFFSETS, b"p" * PAYLOAD_BYTES)])
        refs.append(writer.ref)
    return store, refs


def list_image(refs: list[ObjectRef]) -> MetadataImage:
    """An image with one live stream on one node; its last range is open."""
    listed = [
        {"object_id": each.object_id, "order_id": order, "size": each.size_bytes, "index_size": each.index_size_bytes}
        for order, each in enumerate(refs)
    ]
    owned = {"range_index": 0, "start": 0, "end": -1, "node_id": NODE_ID}
    streams = [{"stream_id": STREAM_ID, "start_offset": 0, "ranges": [owned]}]
    return MetadataImage.from_dict({"streams": streams, "nodes": [{"node_id": NODE_ID, "stream_set_objects": listed}]})


def _slow(store: ObjectStore, seed: int) -> ObjectStore:
    return LatencyStore(store, random.Random(seed), _sleep)


def _sleep(seconds: float) -> None:
    SYSTEM.sleep(seconds)


def _accelerator(store: ObjectStore, image: MetadataImage, **chosen: Any) -> ReadAccelerator:
    return ReadAccelerator(StaticImages(image), store, settings=Settings(**chosen))


class _Stuck(DecoratedStore):
    """Requests for one key take 3 s: all requests, or the first few."""

    def __init__(self, store: ObjectStore, key: str, times: int | None = None) -> None:
        super().__init__(store)
        self._key = key
        self._times = times

    def _around(self, call: StoreCall, send: Callable[[], StoreAnswer]) -> StoreAnswer:
        if call.key == self._key and self._times != 0:
            self._times = None if self._times is None else self._times - 1
            SYSTEM.sleep(SLOW_SECONDS)
        return send()


HANGING_OBJECTS: Final = 200
WARM: Final = 16
LOOKUPS: Final = 100
POLL_SECONDS: Final = 0.01
DEADLINE_SECONDS: Final = 0.2
HANGING_AT_ONCE: Final = 64
HANG_SECONDS_MAX: Final = 60.0
AS_QUICK_SHARE: Final = 0.8


def run_hanging(rounds: int = 7) -> list[Comparison]:
    """Lookups during a refresh that hangs, a GET that hangs, and 64 of them."""
    store, refs = written_objects(HANGING_OBJECTS)
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
            over.set()  # before the accelerators are closed, which wait for requests under way


class _HangingStore(DecoratedStore):
    """Requests for objects from this number on hang."""

    def __init__(self, store: ObjectStore, first: int, over: threading.Event, *, to: int = HANGING_OBJECTS) -> None:
        super().__init__(store)
        self._keys = {LAYOUT.object_key(each) for each in range(first, to)}
        self._over = over

    def _around(self, call: StoreCall, send: Callable[[], StoreAnswer]) -> StoreAnswer:
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
        one = _polling(_HangingStore(store, 2, over, to=3), lambda: image, left)
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
        offset = (HANGING_OBJECTS - 1 - 8 * start) * OFFSETS
        ours.get_objects(STREAM_ID, offset, limit=1, deadline_seconds=0.0)
    timings = interleave(partial(_look_up_known, ours), partial(_look_up_known, peer), rounds=rounds)
    name = f"hanging: requests for others, {LOOKUPS} lookups"
    return timings.compare(name, peer="no request hangs", unit="ms", goal=AS_QUICK_SHARE)


def _look_up_known(one: ReadAccelerator) -> list[int]:
    """Lookups from memory; the first is late enough for a refresh of the image."""
    SYSTEM.sleep(POLL_SECONDS)
    found = []
    for number in range(LOOKUPS):
        start = number % WARM * OFFSETS
        found += [each.object_id for each in one.get_objects(STREAM_ID, start, start + OFFSETS).objects]
    return found


def _warm(
    store: ObjectStore, image: MetadataImage, fetch: Callable[[], MetadataImage], left: ExitStack
) -> ReadAccelerator:
    one = _polling(store, fetch, left)
    if len(one.get_objects(STREAM_ID, 0, WARM * OFFSETS, WARM).objects) != WARM:
        raise RuntimeError(f"expected {WARM} objects of {image}")
    return one


def _polling(store: ObjectStore, fetch: Callable[[], MetadataImage], left: ExitStack) -> ReadAccelerator:
    source = PolledImages(fetch, timer=SYSTEM.timer, sleep=SYSTEM.sleep, poll_seconds=POLL_SECONDS)
    return left.enter_context(ReadAccelerator(source, store, settings=Settings(use_hints=False)))
