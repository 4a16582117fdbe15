"""How long reads take beside one that knows everything; and what one slow request costs them.

Requests take what `LatencyModel` says (half of them 15 ms, one in a hundred 100 ms), at default settings, so at most 64
at once. All begin cold. Both sides run alternately on the same objects: first on a virtual clock, which requests alone
move (`virtual_reads.py`), then in threads, where all that the processor does takes its time, too; ours also keeps what
it learns, and the peer does not.

    read_pipelined, lookup of 1,000   1,000 objects of a list of 5,000 in one lookup; the peer is told which ones they
                                      are, and opens them all at once
    read_pipelined, read of 400       the records of 400 objects; the peer is told which objects hold them, opens all
                                      at once, and fetches the blocks of each as soon as it is open

    slow_get, unneeded                one of the objects that a round opens takes 3 s, and the answer does not need it;
                                      the peer has no slow object
    slow_get, needed                  the first request for the one object that the answer needs takes 3 s; the peer
                                      waits, as it would without second requests. Both have opened 90 objects before

A ratio of 1 is as quick as one that knows everything; the goal is 1 / 1.3.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from accel import MetadataImage, ReadAccelerator, Settings, StaticImages
from accel.lookup.answer import Request
from accel.system import SYSTEM
from accel.testing import LatencyStore
from benchmarks.harness import AnswersDiffer, Comparison, Timings, interleave
from benchmarks.virtual_reads import Connections, VirtualReader, read_all_seconds
from loaders.format import FOOTER_SIZE_BYTES, RecordBatch, decode_block_bytes
from loaders.layout import ObjectLayout
from loaders.object_index import ObjectIndexLoader, OpenedObject, fetch_tail, open_fetched
from loaders.object_ref import ObjectRef
from loaders.object_writer import ObjectWriter
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import Answer, DecoratedStore, StoreCall

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
WITHIN_SHARE: Final = 1 / 1.3
UNNEEDED_SHARE: Final = 0.8
NEEDED_TIMES: Final = 10.0
LAYOUT = ObjectLayout()


def run(rounds: int = 7) -> list[Comparison]:
    """A lookup of many objects, and a read of many."""
    store, refs = written_objects(OBJECTS)
    image = list_image(refs)
    slow = _slow(store, SEED)
    with ThreadPoolExecutor(1) as executor:
        opened = list(_opened(store, refs, executor))
    return [
        _virtual_lookups(store, image, opened, rounds),
        _virtual_reads(store, image, opened, rounds),
        _compare_lookups(slow, image, refs[:SCANNED], rounds),
        _compare_reads(slow, image, refs[:READ], rounds),
    ]


def run_slow_get(rounds: int = 7) -> list[Comparison]:
    """A lookup with a slow object that it does not need, and reads of slow ones that they need."""
    store, refs = written_objects(400)
    return [_compare_unneeded(store, refs, rounds), _compare_needed(store, refs, rounds)]


def _virtual_lookups(store: ObjectStore, image: MetadataImage, opened: list[OpenedObject], rounds: int) -> Comparison:
    timings = Timings([], [])
    for seed in range(SEED, SEED + rounds):
        ours, peer = Connections(random.Random(seed)), Connections(random.Random(seed))
        answer = VirtualReader(image, opened, store, ours).look_up(Request(STREAM_ID, 0, -1, SCANNED))
        if [each.object_id for each in answer.objects] != list(range(SCANNED)):
            raise AnswersDiffer(f"expected objects 0 to {SCANNED - 1}, found {answer.objects}")
        timings.ours_seconds.append(ours.now_seconds)
        timings.peer_seconds.append(read_all_seconds(opened[:SCANNED], [0] * SCANNED, peer))
    name = f"read_pipelined: lookup of {SCANNED:,} objects"
    return timings.compare(name, peer="told which objects, opens them at once", unit="ms", goal=WITHIN_SHARE)


def _virtual_reads(store: ObjectStore, image: MetadataImage, opened: list[OpenedObject], rounds: int) -> Comparison:
    timings, sizes = Timings([], []), [each.index.row(0).size_bytes for each in opened[:READ]]
    for seed in range(SEED, SEED + rounds):
        ours, peer = Connections(random.Random(seed)), Connections(random.Random(seed))
        found = VirtualReader(image, opened, store, ours).read(STREAM_ID, 0, READ * OFFSETS)
        if found != list(range(0, READ * OFFSETS, OFFSETS)):
            raise AnswersDiffer(f"expected {READ} batches, found those at {found}")
        timings.ours_seconds.append(ours.now_seconds)
        timings.peer_seconds.append(read_all_seconds(opened[:READ], sizes, peer))
    name = f"read_pipelined: read of {READ:,} objects"
    return timings.compare(name, peer="told which objects, reads them at once", unit="ms", goal=WITHIN_SHARE)


def _compare_lookups(store: ObjectStore, image: MetadataImage, refs: list[ObjectRef], rounds: int) -> Comparison:
    def ours() -> list[int]:
        with _accelerator(store, image) as one:
            return [each.object_id for each in one.get_objects(STREAM_ID, 0, limit=len(refs)).objects]

    def peer() -> list[int]:
        with ThreadPoolExecutor(CONNECTIONS) as executor:
            return [each.ref.object_id for each in _opened(store, refs, executor)]

    timings = interleave(ours, peer, rounds=rounds)
    name = f"read_pipelined: lookup of {len(refs):,} objects, in threads"
    return timings.compare(name, peer="told which objects, opens them at once", unit="ms")


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
    return timings.compare(name, peer="told which objects, reads them at once", unit="ms")


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
    """Objects 0, 1, 2, ... with a batch of the stream each, one after another."""
    store, refs = MemoryStore(), []
    for number in range(count):
        with ObjectWriter(store, LAYOUT, number) as writer:
            writer.write(STREAM_ID, [RecordBatch(STREAM_ID, 1, number * OFFSETS, OFFSETS, b"p" * PAYLOAD_BYTES)])
        refs.append(writer.ref)
    return store, refs


def list_image(refs: list[ObjectRef]) -> MetadataImage:
    """One stream on one node whose end is open, as that of a live stream."""
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
    """Requests for one key take 3 s: all of them, or the first few."""

    def __init__(self, store: ObjectStore, key: str, times: int | None = None) -> None:
        super().__init__(store)
        self._key = key
        self._times = times

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        if call.key == self._key and self._times != 0:
            self._times = None if self._times is None else self._times - 1
            SYSTEM.sleep(SLOW_SECONDS)
        return send()
