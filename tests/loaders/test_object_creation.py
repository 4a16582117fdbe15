"""An object is created once: what lies there already is left alone, and a lost reply is settled by reading."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pickle import dumps, loads
from typing import TypeVar

import numpy as np
import pytest

from accel.system import SYSTEM
from accel.testing import Fault, FaultStore
from loaders.backoff import Backoff
from loaders.errors import NamespaceShared, ObjectExists, RequestRefused, StoreError, StoreUnavailable, WriteConflict
from loaders.format import RecordBatch
from loaders.layout import ObjectLayout
from loaders.merge.merger import WrittenObject, merge_objects
from loaders.merge.plan import plan_merge
from loaders.merge.transfer import open_sources
from loaders.object_ref import ObjectRef
from loaders.object_writer import ATTEMPTS_MAX, ObjectWriter, create_object, stored_size_bytes
from loaders.settings import MergeSettings
from loaders.store import CountingStore, MemoryStore, ObjectStore
from loaders.store.decorated import DecoratedStore, StoreCall
from tests.builders import write_set_object

Answer = TypeVar("Answer")

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
    create_object(store, KEY, BODY, Backoff(paused.append, lambda: 0.5))
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


CATALOG = ObjectLayout(namespace="cluster", catalog_id="0a" * 16)
MARK = CATALOG.mark(42, SYSTEM.nonce)
STRANGERS = [
    None,
    "not a mark of ours",
    ObjectLayout(namespace="cluster").mark(42, SYSTEM.nonce),
    ObjectLayout(namespace="cluster", catalog_id="0b" * 16).mark(42, SYSTEM.nonce),
    CATALOG.mark(43, SYSTEM.nonce),
]


def write_marked(store: ObjectStore, part_size_bytes: int, payload: bytes = b"x" * 500) -> str | None:
    """Write object 42 of the catalog; returns its mark as the store has it."""
    writer = ObjectWriter(store, CATALOG, 42, part_size_bytes=part_size_bytes, nonce=SYSTEM.nonce)
    with writer:
        writer.write(1, [RecordBatch(1, 1, 0, 5, payload)])
    return store.get_range(KEY, 0, 1).mark


@pytest.mark.parametrize("part_size_bytes", [100, 10_000])
def test_an_object_of_a_catalog_has_a_mark_of_its_own(part_size_bytes: int) -> None:
    marks = {write_marked(MemoryStore(), part_size_bytes) for _ in range(3)}
    assert len(marks) == 3
    assert all(CATALOG.is_ours(42, mark) for mark in marks)


@pytest.mark.parametrize("part_size_bytes", [100, 10_000])
@pytest.mark.parametrize("body", [b"theirs", b""])
@pytest.mark.parametrize("mark", STRANGERS, ids=range(len(STRANGERS)))
def test_an_object_without_a_mark_of_the_catalog_is_another_systems_and_left_alone(
    part_size_bytes: int, body: bytes, mark: str | None
) -> None:
    store = MemoryStore()
    store.put(KEY, body, mark=None if mark is None else mark.replace(" ", "-"))
    with pytest.raises(
        NamespaceShared, match=r"catalog 0a0a\w+ did not write: (it has no mark|its mark is of)"
    ) as caught:
        write_marked(store, part_size_bytes)
    assert store.get(KEY).body == body
    assert store.open_uploads == 0
    assert (caught.value.key, caught.value.retryable) == (KEY, False)
    assert str(loads(dumps(caught.value))) == str(caught.value)  # noqa: S301 - made in the line itself


@pytest.mark.parametrize("part_size_bytes", [100, 10_000])
def test_another_object_of_the_same_catalog_is_the_counters_fault(part_size_bytes: int) -> None:
    store = MemoryStore()
    store.put(KEY, b"ours", mark=CATALOG.mark(42, SYSTEM.nonce))
    with pytest.raises(ObjectExists, match="another of this catalog"):
        write_marked(store, part_size_bytes)
    assert store.get(KEY).body == b"ours"


@pytest.mark.parametrize("mark", STRANGERS[2:], ids=range(len(STRANGERS) - 2))
def test_the_same_bytes_with_the_mark_of_another_do_not_count_as_written(mark: str) -> None:
    store = MemoryStore()
    store.put(KEY, BODY, mark=mark)
    with pytest.raises(NamespaceShared):
        create_object(store, KEY, BODY, mark=MARK)


@pytest.mark.parametrize("mark", [None, MARK, CATALOG.mark(42, SYSTEM.nonce)], ids=["none", "same", "other write"])
def test_the_same_bytes_count_as_written_where_metadata_are_lost_or_ours(mark: str | None) -> None:
    store = MemoryStore()
    store.put(KEY, BODY, mark=mark)
    create_object(store, KEY, BODY, mark=MARK)
    assert store.get(KEY).mark == mark


class Overtaken(DecoratedStore):
    """Another writer's object replaces what a completion made, and the reply is lost."""

    def __init__(self, store: ObjectStore, mark: str | None) -> None:
        super().__init__(store)
        self._mark = mark

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        answer = send()
        if call.operation == "complete":
            self._store.put(call.key, self._store.get(call.key).body, mark=self._mark)
            raise StoreUnavailable("complete", call.key, "the reply was lost")
        return answer


def test_a_lost_completion_is_decided_by_the_write_and_not_by_equal_bytes() -> None:
    with pytest.raises(StoreUnavailable, match="the reply was lost"):
        write_marked(Overtaken(MemoryStore(), CATALOG.mark(42, SYSTEM.nonce)), 100)
    write_marked(Overtaken(MemoryStore(), None), 100)  # a server without metadata: bytes decide


SOURCES = (write_set_object([(3, 0, 9), (4, 0, 5)]), write_set_object([(3, 9, 12)]))


def merged(store: ObjectStore, part_size_bytes: int) -> list[WrittenObject]:
    """Merge the sources, which exist, to object 42 and those from 50 on."""
    refs = [ObjectRef(object_id, len(body)) for object_id, body in enumerate(SOURCES)]
    with ThreadPoolExecutor(2) as executor:
        sources = open_sources(store, CATALOG, refs, executor=executor)
        plan = plan_merge([source.index for source in sources], NONE, NONE)
        ids = [42, *range(50, 50 + len(plan.outputs) - 1)]
        settings = MergeSettings(part_size_bytes=part_size_bytes)
        return merge_objects(store, CATALOG, sources, plan, ids, settings, executor=executor, nonce=SYSTEM.nonce)


def store_of_sources() -> MemoryStore:
    store = MemoryStore()
    for object_id, body in enumerate(SOURCES):
        store.put(CATALOG.object_key(object_id), body)
    return store


@pytest.mark.parametrize("part_size_bytes", [60, 1 << 20])
def test_the_outputs_of_a_merge_have_marks_and_those_of_another_system_stop_it(part_size_bytes: int) -> None:
    store = store_of_sources()
    outputs = merged(store, part_size_bytes)
    assert all(CATALOG.is_ours(each.object_id, store.get(CATALOG.object_key(each.object_id)).mark) for each in outputs)

    store = store_of_sources()
    store.put(KEY, b"theirs")
    with pytest.raises(NamespaceShared):
        merged(store, part_size_bytes)
    assert store.get(KEY).body == b"theirs"
    assert len(store) == 3
    assert store.open_uploads == 0


@pytest.mark.parametrize("part_size_bytes", [60, 1 << 20])
def test_a_completion_of_a_merge_whose_reply_is_lost_is_found_done(part_size_bytes: int) -> None:
    inner = store_of_sources()
    store = FaultStore(inner, operations={"complete" if part_size_bytes == 60 else "put"})
    store.schedule(Fault.LOST_REPLY)
    assert [each.object_id for each in merged(store, part_size_bytes)][:1] == [42]
    assert inner.get(KEY).mark is not None


@pytest.mark.parametrize("mark", [None, CATALOG.mark(42, SYSTEM.nonce)], ids=["none", "other write"])
def test_a_failed_merge_takes_back_no_object_that_it_did_not_write(mark: str | None) -> None:
    inner = store_of_sources()
    with pytest.raises(StoreUnavailable):
        merged(Overtaken(inner, mark), 60)
    assert (inner.get(KEY).mark, inner.open_uploads) == (mark, 0)


def test_a_failed_merge_takes_back_what_it_wrote() -> None:
    inner = store_of_sources()
    store = FaultStore(inner, operations={"put", "get_range"})
    store.schedule(None, Fault.TIMEOUT)  # the put, and reading back
    with pytest.raises(StoreUnavailable):
        merged(store, 1 << 20)
    assert len(inner) == 2


def test_what_the_store_refuses_is_told_at_once() -> None:
    class Refusing(MemoryStore):
        def put(self, key: str, *_: object, **__: object) -> str:
            raise RequestRefused("put", key, "no")

    with pytest.raises(StoreError, match="no"):
        create_object(Refusing(), KEY, BODY)
