"""An object is created once: what lies there already is left alone, and a lost reply is settled by reading."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pickle import dumps, loads

import numpy as np
import pytest

from accel.testing import Fault, FaultStore
from loaders.backoff import Backoff
from loaders.errors import ObjectExists, RequestRefused, StoreError, StoreUnavailable, WriteConflict
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.merge.merger import merge_objects
from loaders.merge.plan import plan_merge
from loaders.merge.reading import open_sources
from loaders.object_ref import ObjectRef
from loaders.object_writer import ATTEMPTS_MAX, ObjectWriter, create_object, stored_size_bytes
from loaders.settings import MergeSettings, RetrySettings
from loaders.store import CountingStore, MemoryStore, ObjectStore
from tests.builders import write_set_object

LAYOUT = ObjectLayout(namespace="cluster")
KEY = LAYOUT.object_key(42)
BODY = b"mine" * 10
NONE = np.empty(0, dtype=np.int64)
FAULTS = [Fault.TIMEOUT, Fault.SLOW_DOWN, Fault.LOST_REPLY, Fault.CONFLICT, Fault.SERVER_ERROR]


def test_an_object_is_one_request() -> None:
    store = CountingStore(MemoryStore())
    create_object(store, KEY, BODY)
    assert store.snapshot().total.requests == 1
    assert store.get(KEY).body == BODY


@pytest.mark.parametrize("other", [b"", b"other", b"also" * 10, BODY + b"!", BODY[:-1]])
def test_another_object_is_left_alone(other: bytes) -> None:
    store = MemoryStore()
    store.put(KEY, other)
    with pytest.raises(ObjectExists, match=f"this one of 40 bytes, found another of {len(other)} bytes"):
        create_object(store, KEY, BODY)
    assert store.get(KEY).body == other


@pytest.mark.parametrize("body", [BODY, bytearray(BODY), memoryview(BODY)])
def test_the_same_bytes_count_as_written(body: bytes) -> None:
    store = MemoryStore()
    store.put(KEY, BODY)
    create_object(store, KEY, body)
    assert store.get(KEY).body == BODY


@pytest.mark.parametrize("faults", list(product(FAULTS, repeat=3)), ids=lambda each: "-".join(one.name for one in each))
def test_replies_that_say_nothing_are_settled(faults: tuple[Fault, ...]) -> None:
    inner = MemoryStore()
    store = FaultStore(inner, operations={"put"})
    store.schedule(*faults)
    paused: list[float] = []
    create_object(store, KEY, BODY, Backoff(RetrySettings(), paused.append, lambda: 0.5))
    assert inner.get(KEY).body == BODY
    unwritten = faults.index(Fault.LOST_REPLY) if Fault.LOST_REPLY in faults else len(faults)
    assert len(paused) == unwritten


@pytest.mark.parametrize("fault", FAULTS)
def test_a_lost_reply_never_hides_another_object(fault: Fault) -> None:
    inner = MemoryStore()
    inner.put(KEY, b"other")
    store = FaultStore(inner, operations={"put"})
    store.schedule(fault)
    with pytest.raises(ObjectExists):
        create_object(store, KEY, BODY)
    assert inner.get(KEY).body == b"other"


def test_it_gives_up_after_a_few_attempts() -> None:
    inner = MemoryStore()
    store = FaultStore(inner, operations={"put"})
    store.schedule(*[Fault.CONFLICT] * ATTEMPTS_MAX)
    with pytest.raises(WriteConflict):
        create_object(store, KEY, BODY)
    assert store.injected[Fault.CONFLICT] == ATTEMPTS_MAX
    assert len(inner) == 0


def test_what_cannot_be_read_back_is_not_taken_for_done() -> None:
    inner = MemoryStore()
    store = FaultStore(inner, operations={"put", "get_range"})
    store.schedule(Fault.LOST_REPLY, Fault.TIMEOUT)
    with pytest.raises(StoreUnavailable):
        create_object(store, KEY, BODY)
    create_object(store, KEY, BODY)  # writing the same bytes again is safe


def test_the_size_of_what_lies_there() -> None:
    store = MemoryStore()
    assert stored_size_bytes(store, KEY) is None
    for body in (b"", b"x", BODY):
        store.put(KEY, body)
        assert stored_size_bytes(store, KEY) == len(body)


def written(store: ObjectStore, part_size_bytes: int, payload: bytes = b"x" * 500) -> ObjectRef:
    with ObjectWriter(store, LAYOUT, 42, part_size_bytes=part_size_bytes) as writer:
        writer.write(1, [RecordBatch(1, 1, 0, 5, payload)])
    return writer.ref


@pytest.mark.parametrize("part_size_bytes", [100, 10_000])
def test_a_writer_leaves_another_object_alone(part_size_bytes: int) -> None:
    store = MemoryStore()
    store.put(KEY, b"live")
    with pytest.raises(ObjectExists) as caught:
        written(store, part_size_bytes)
    assert store.get(KEY).body == b"live"
    assert store.open_uploads == 0
    assert caught.value.key == KEY
    assert not caught.value.retryable


@pytest.mark.parametrize("part_size_bytes", [100, 10_000])
def test_a_writer_settles_a_lost_reply(part_size_bytes: int) -> None:
    inner = MemoryStore()
    store = FaultStore(inner, operations={"put", "complete"})
    store.schedule(Fault.LOST_REPLY)
    ref = written(store, part_size_bytes)
    assert stored_size_bytes(inner, KEY) == ref.size_bytes


def test_a_completion_that_cannot_be_settled_is_an_error() -> None:
    store = FaultStore(MemoryStore(), operations={"complete", "get_tail"})
    store.schedule(Fault.LOST_REPLY, Fault.TIMEOUT)
    with pytest.raises(StoreUnavailable, match="complete"):
        written(store, 100)


def test_a_reference_says_who_wrote_it_and_the_word_stays_in_its_process() -> None:
    store = MemoryStore()
    ref = written(store, 10_000)
    assert ref.proof is not None
    assert (ref.proof.key, ref.proof.store) == (KEY, store)
    sent = loads(dumps(ref))  # noqa: S301 - made in the line itself
    assert sent == ref == ObjectRef(42, ref.size_bytes, ref.index_size_bytes, tail_checksum=ref.tail_checksum)
    assert (sent.proof.key, sent.proof.store) == (KEY, None)


@pytest.mark.parametrize("part_size_bytes", [60, 1 << 20])
def test_a_merge_leaves_another_object_alone(part_size_bytes: int) -> None:
    store = MemoryStore()
    refs = []
    for object_id, body in enumerate((write_set_object([(3, 0, 9), (4, 0, 5)]), write_set_object([(3, 9, 12)]))):
        store.put(LAYOUT.object_key(object_id), body)
        refs.append(ObjectRef(object_id, len(body)))
    store.put(KEY, b"live")
    with ThreadPoolExecutor(2) as executor:
        sources = open_sources(store, LAYOUT, refs, executor=executor)
        plan = plan_merge([source.index for source in sources], NONE, NONE)
        ids = [42, *range(50, 50 + len(plan.outputs) - 1)]
        settings = MergeSettings(part_size_bytes=part_size_bytes)
        with pytest.raises(ObjectExists):
            merge_objects(store, LAYOUT, sources, plan, ids, settings, executor=executor)
    assert store.get(KEY).body == b"live"
    assert len(store) == 3
    assert store.open_uploads == 0


def test_what_the_store_refuses_is_told_at_once() -> None:
    class Refusing(MemoryStore):
        def put(self, key: str, *_: object, **__: object) -> str:
            raise RequestRefused("put", key, "no")

    with pytest.raises(StoreError, match="no"):
        create_object(Refusing(), KEY, BODY)
