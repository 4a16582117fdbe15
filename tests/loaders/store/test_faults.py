"""Injected faults raise what a real store's would, leave behind what a real store's would, and can be repeated."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from accel.testing import Fault, FaultStore
from loaders.errors import PreconditionFailed, StoreError, StoreUnavailable, WriteConflict
from loaders.store import ALWAYS, Condition, CreateOnly, IfMatch, MemoryStore

WRITES: list[tuple[Fault, type[StoreError] | None, type[StoreError], bool]] = [
    (Fault.SLOW_DOWN, StoreUnavailable, StoreUnavailable, False),
    (Fault.SERVER_ERROR, StoreUnavailable, WriteConflict, False),
    (Fault.TIMEOUT, StoreUnavailable, StoreUnavailable, False),
    (Fault.RESET, StoreUnavailable, StoreUnavailable, False),
    (Fault.PRECONDITION, None, PreconditionFailed, False),  # strikes conditional writes alone
    (Fault.CONFLICT, None, WriteConflict, False),
    (Fault.LOST_REPLY, StoreUnavailable, StoreUnavailable, True),
]


@pytest.mark.parametrize(("fault", "plain", "conditional", "is_written"), WRITES)
def test_a_fault_of_a_write_raises_what_a_server_would_and_leaves_what_it_would(
    fault: Fault, plain: type[StoreError] | None, conditional: type[StoreError], is_written: bool
) -> None:
    conditions: list[tuple[Condition, type[StoreError] | None]] = [(ALWAYS, plain), (CreateOnly(), conditional)]
    for condition, kind in conditions:
        if kind is None:
            continue
        inner = MemoryStore()
        store = FaultStore(inner)
        store.schedule(fault)
        with pytest.raises(kind):
            store.put("k", b"x", condition=condition)
        assert [store.get(info.key).body for info in inner.list("")] == [b"x"] * is_written


def test_a_lost_reply_hides_a_refusal_as_well() -> None:
    store = FaultStore(MemoryStore())
    store.put("k", b"x")
    store.schedule(Fault.LOST_REPLY)
    with pytest.raises(StoreUnavailable) as caught:
        store.put("k", b"y", condition=IfMatch("another"))
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert store.get("k").body == b"x"


def test_a_short_body_is_never_returned() -> None:
    store = FaultStore(MemoryStore())
    store.put("k", b"x")
    for ask in (store.get, lambda key: store.get_range(key, 0, 1), lambda key: store.get_tail(key, 1)):
        store.schedule(Fault.SHORT_BODY)
        with pytest.raises(StoreUnavailable, match="fewer bytes"):
            ask("k")


def test_the_schedule_goes_by_requests_and_none_lets_one_pass() -> None:
    store = FaultStore(MemoryStore())
    store.schedule(None, Fault.RESET)
    store.put("a", b"")
    with pytest.raises(StoreUnavailable):
        store.put("b", b"")
    store.put("c", b"")
    assert [each.key for each in store.list("")] == ["a", "c"]
    assert store.injected == Counter({Fault.RESET: 1})


def test_a_fault_that_cannot_hit_what_it_is_scheduled_for_is_a_mistake_of_the_test() -> None:
    store = FaultStore(MemoryStore())
    store.schedule(Fault.CONFLICT)
    with pytest.raises(ValueError, match="CONFLICT is scheduled"):
        store.put("k", b"")


def test_operations_that_are_not_chosen_pass_and_use_up_nothing() -> None:
    store = FaultStore(MemoryStore(), operations={"put"})
    store.schedule(Fault.SLOW_DOWN)
    assert list(store.list("")) == []
    store.delete("k")
    with pytest.raises(StoreUnavailable):
        store.put("k", b"")


def test_a_batch_of_deletes_that_fails_names_all_its_keys() -> None:
    inner = MemoryStore()
    store = FaultStore(inner)
    keys = [f"{number:04}" for number in range(1500)]
    for key in keys:
        inner.put(key, b"")
    store.schedule(None, Fault.SLOW_DOWN)
    failures = store.delete_many(keys)
    assert [failure.key for failure in failures] == keys[1000:]
    assert all(isinstance(failure.error, StoreUnavailable) for failure in failures)
    assert len(inner) == 500


def test_faults_strike_multipart_uploads() -> None:
    inner = MemoryStore()
    store = FaultStore(inner)
    upload = store.start_multipart("k")
    store.schedule(Fault.RESET)
    with pytest.raises(StoreUnavailable):
        upload.upload_part(1, b"x")
    receipt = upload.upload_part(1, b"x")
    store.schedule(Fault.LOST_REPLY)
    with pytest.raises(StoreUnavailable):
        upload.complete([receipt])
    assert inner.get("k").body == b"x"


def test_probabilities_are_kept_and_repeat_with_their_seed() -> None:
    def run(seed: int) -> tuple[list[str], Counter[Fault]]:
        chances = {Fault.SLOW_DOWN: 0.1, Fault.CONFLICT: 0.2, Fault.SHORT_BODY: 0.5}
        store = FaultStore(MemoryStore(), rng=Random(seed), probabilities=chances)
        outcomes = []
        for number in range(2000):
            try:
                store.put(f"{number}", b"", condition=CreateOnly())
                outcomes.append("written")
            except StoreError as error:
                outcomes.append(type(error).__name__)
        return outcomes, store.injected

    outcomes, injected = run(5)
    assert (outcomes, injected) == run(5)
    assert outcomes != run(6)[0]
    assert injected[Fault.SHORT_BODY] == 0, "it cannot hit a write"
    assert injected[Fault.SLOW_DOWN] == outcomes.count("StoreThrottled") == pytest.approx(200, abs=50)
    assert injected[Fault.CONFLICT] == outcomes.count("WriteConflict") == pytest.approx(400, abs=70)


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 1"):
        FaultStore(MemoryStore(), rng=Random(1), probabilities={Fault.RESET: 0.6, Fault.TIMEOUT: 0.6})
    with pytest.raises(ValueError, match="or more"):
        FaultStore(MemoryStore(), rng=Random(1), probabilities={Fault.RESET: -0.1})
    with pytest.raises(ValueError, match="Random"):
        FaultStore(MemoryStore(), probabilities={Fault.RESET: 0.1})
    with pytest.raises(ValueError, match="no such operations"):
        FaultStore(MemoryStore(), operations={"head"})
