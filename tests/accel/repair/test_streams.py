"""Records that are damaged, missing or contradict others: found, rebuilt from others, or named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count, product
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.errors import IllegalState, InvalidArgument, NotInHistory, OperationNotAllowed, StreamDeleted
from accel.history.rules.configuration import StreamConfiguration
from accel.history.rules.states import StreamState
from accel.history.store.keys import StreamKeys
from accel.repair import findings
from accel.repair.findings import Repair, RepairOutcome
from accel.repair.streams import repair_stream
from accel.streams.groups import ReaderGroup
from accel.testing import Crash, CrashStore
from loaders.errors import CorruptObject
from loaders.store import ObjectStore
from loaders.store.decorated import StoreCall
from loaders.tables import TypedKey
from loaders.tables.conditional_write import TOMBSTONE_SIZE_BYTES
from tests.accel.history.store.bench import NAME, Bench, cut, ids
from tests.conformance.history_queries import everything
from tests.conformance.history_world import SCOPE, STREAM
from tests.examples import examples, is_whole
from tests.world import Watched

Damage = Callable[[Bench, str], None]

NOT_REBUILT = ("configuration", "layout", "truncation", "retentionCuts-", "segmentStream-", "transactionsInEpoch-")
NOT_MISSED = ("retentionCuts-", "transactionsInEpoch-")
"""Keys that may be absent: nothing else says that they were there."""

NOT_READ = ("creationTime", "segmentStream-", "historyIndex-leaf-0", "epochsWithTr")
"""Keys that `everything` does not read; each has a question of its own."""


@cache
def _grown() -> Bench:
    bench = Bench()
    bench.create()
    bench.append_all(7)
    bench.transaction("first")
    for _ in range(5):
        bench.scale_once()
        bench.append_all(3)
    stream = bench.stream()
    stream.workflows.retention.add(bench.tick(), 5, cut(s5_4=1, s6_5=1))
    stream.workflows.retention.add(bench.tick(), 9, cut(s5_4=2, s6_5=1))
    stream.commit(bench.tick())  # rolls: two duplicate epochs
    bench.append_all(2)
    bench.scale_once()
    stream.truncate(cut(s1_0=3, s2_1=2))
    bench.transaction("to commit")
    bench.transaction("open", commit=None)
    bench.tick(100)
    return bench


def grown() -> Bench:
    """A stream with 9 epochs, two of them duplicates, transactions, cuts and a truncation."""
    return _grown().clone()


@cache
def _shown_of_grown() -> dict[str, Any]:
    return shown(grown())


def keys_of(bench: Bench) -> list[str]:
    """All live keys of the stream's tables, but the markers of these."""
    start = "accel/tables/" + quote(f"{SCOPE}/{STREAM}/", safe="")
    found = [info.key for info in bench.store.list(start) if info.size_bytes != TOMBSTONE_SIZE_BYTES]
    return sorted(each for each in found if not each.endswith("/!table"))


def key_of(bench: Bench, name: str) -> str:
    """Where a key of the stream lies."""
    return next(each for each in keys_of(bench) if each.endswith(f"/{name}"))


def flip(bench: Bench, key: str) -> None:
    """Another byte in the middle."""
    body = bytearray(bench.store.get(key).body)
    body[len(body) // 2] ^= 0x10
    bench.store.put(key, bytes(body))


def swap(bench: Bench, key: str) -> None:
    """The valid bytes of a sibling."""
    folder = key.rpartition("/")[0]
    sibling = next(each for each in keys_of(bench) if each.startswith(folder) and each != key)
    bench.store.put(key, bench.store.get(sibling).body)


def empty(bench: Bench, key: str) -> None:
    """No bytes at all."""
    bench.store.put(key, b"")


def remove(bench: Bench, key: str) -> None:
    """The key is deleted from outside."""
    bench.store.delete(key)


def bodies(bench: Bench) -> dict[str, bytes]:
    """The whole bucket."""
    return {info.key: bench.store.get(info.key).body for info in bench.store.list("")}


def repair(bench: Bench, *, apply: bool = False) -> Repair:
    return repair_stream(bench.streams(), SCOPE, STREAM, apply=apply)


def outcomes(found: Repair) -> dict[str, RepairOutcome]:
    return {each.key: each.outcome for each in found.findings}


def shown(bench: Bench) -> dict[str, Any]:
    """All that can be seen, but sizes of segments that are gone."""
    found: dict[str, Any] = everything(bench)
    there = set(bench.host.ids(NAME))
    found["shards"] = [{each: size for each, size in shard.items() if each in there} for shard in found["shards"]]
    return found


def is_named(key: str, names: tuple[str, ...]) -> bool:
    return any(each in key for each in names)


DAMAGES: dict[str, Damage] = {"flip": flip, "sibling": swap, "empty": empty, "removed": remove}


def test_a_sound_stream_has_no_findings() -> None:
    bench = grown()
    before = bodies(bench)
    assert repair(bench, apply=True) == Repair(f"{SCOPE}/{STREAM}", True, (), True)
    assert bodies(bench) == before


def damages() -> list[tuple[str, str]]:
    """All damages of all keys, or for each kind of key two damages of two of its keys."""
    kinds: dict[str, list[str]] = {}
    for key in keys_of(_grown()):
        kinds.setdefault(key.rpartition("/")[2].rstrip("0123456789"), []).append(key)
    names = ["flip", "sibling", "removed"]
    if is_whole():
        return list(product(names, keys_of(_grown())))
    places = product(enumerate(kinds.values()), (0, 1))
    return [(names[(number + each) % 3], keys[each % len(keys)]) for (number, keys), each in places]


@pytest.mark.parametrize(("damage", "key"), damages())
def test_each_record_is_rebuilt_or_named(key: str, damage: str) -> None:
    if "epochsWithTransactions" in key and damage == "sibling":
        damage = "flip"  # it has no sibling
    bench = grown()
    before, original = _shown_of_grown(), bodies(bench)
    DAMAGES[damage](bench, key)
    damaged = bodies(bench)
    name = key.rpartition("/")[2]
    if damage != "removed" and not is_named(key, NOT_READ):
        with pytest.raises(CorruptObject, match=name):
            shown(bench)
    found = repair(bench)
    assert bodies(bench) == damaged
    if damage == "removed" and is_named(key, NOT_MISSED):
        assert not found.findings
        return
    lost = is_named(key, NOT_REBUILT)
    assert outcomes(found) == {name: RepairOutcome.LOST if lost else RepairOutcome.REBUILDABLE}
    done = repair(bench, apply=True)
    if lost:
        assert outcomes(done) == {name: RepairOutcome.LOST}
        assert bodies(bench) == damaged
        bench.store.put(key, original[key])
    else:
        assert outcomes(done) == {name: RepairOutcome.REBUILT}
    assert not repair(bench).findings
    if not is_named(key, ("state",)):
        assert shown(bench) == before
    assert bench.streams().recover_stream(SCOPE, STREAM) == []
    bench.scale_once()
    assert bench.stream().current_epoch().epoch == 9
    assert not repair(bench).findings


def put_back(bench: Bench, name: str, past: dict[str, bytes]) -> None:
    """The valid bytes that a key had before."""
    key = key_of(bench, name)
    assert bench.store.get(key).body != past[key]
    bench.store.put(key, past[key])


@pytest.mark.parametrize("name", ["historyTimeSeriesChunk-4", "currentEpochRecord", "historyIndex", "commitOrder"])
def test_a_record_that_was_put_back_from_before_is_brought_forward(name: str) -> None:
    bench = grown()
    past = bodies(bench)
    bench.scale_once()
    bench.transaction("later")
    before = shown(bench)
    put_back(bench, name, past)
    assert outcomes(repair(bench)) == {name: RepairOutcome.REBUILDABLE}
    assert outcomes(repair(bench, apply=True)) == {name: RepairOutcome.REBUILT}
    assert shown(bench) == before
    assert not repair(bench).findings


def stream_keys_of(bench: Bench) -> StreamKeys:
    return bench.stream().parts.keys


@pytest.mark.parametrize("name", ["epochRecord-3", "historyTimeSeriesChunk-0", "segmentSealedEpochPath-0"])
def test_a_final_record_that_contradicts_others_is_written_over(name: str) -> None:
    bench = grown()
    before, keys = shown(bench), stream_keys_of(bench)
    all_keys: dict[str, TypedKey[Any]] = {
        "epochRecord-3": keys.epoch(3),
        "historyTimeSeriesChunk-0": keys.chunk(0, 2),
        "segmentSealedEpochPath-0": keys.sealed_epoch(0),
    }
    key = all_keys[name]
    wrong: Any = {
        "epochRecord-3": keys.epoch(4).get().value,
        "historyTimeSeriesChunk-0": keys.chunk(1, 2).get().value,
        "segmentSealedEpochPath-0": 7,
    }[name]
    key.erase()
    key.create_if_absent(wrong)
    done = repair(bench, apply=True)
    assert outcomes(done) == {name: RepairOutcome.REBUILT}
    assert "expected" in done.findings[0].problem
    assert shown(bench) == before
    assert not repair(bench).findings


def test_a_workflow_that_stopped_at_a_damaged_record_goes_on_after_the_repair() -> None:
    bench, sound = grown(), grown()
    sound.scale_once()
    flip(bench, key_of(bench, "historyTimeSeriesChunk-4"))
    with pytest.raises(CorruptObject, match="historyTimeSeriesChunk-4"):
        bench.scale_once()
    assert bench.stream().state() is StreamState.SCALING
    assert outcomes(repair(bench, apply=True)) == {"historyTimeSeriesChunk-4": RepairOutcome.REBUILT}
    assert bench.streams().recover_stream(SCOPE, STREAM) == ["scale"]
    assert shown(bench) == shown(sound)
    assert not repair(bench).findings


@pytest.mark.parametrize("damage", ["flip", "removed"])
@pytest.mark.parametrize("name", ["epochRecord-9", "currentEpochRecord", "historyIndex", "segmentStream-"])
def test_what_a_workflow_has_written_beyond_the_current_epoch_is_left_to_it(name: str, damage: str) -> None:
    bench, sound = stuck(), grown()
    sound.scale_once()
    if name.endswith("-"):
        numbers = [each.rpartition("-")[2] for each in keys_of(bench) if name in each]
        name += max(numbers, key=int)
    DAMAGES[damage](bench, key_of(bench, name))
    done = outcomes(repair(bench, apply=True))
    if name.startswith("segmentStream"):
        assert done == ({} if damage == "removed" else {name: RepairOutcome.LOST})
        return
    assert set(done.values()) <= {RepairOutcome.REBUILT}
    bench.streams().recover_stream(SCOPE, STREAM)
    assert shown(bench) == shown(sound)
    assert not repair(bench).findings


# The state


def state_is(bench: Bench, state: StreamState) -> None:
    """The key of the state is damaged; repair finds out which it was."""
    before = shown(bench)
    flip(bench, key_of(bench, "state"))
    assert outcomes(repair(bench, apply=True)) == {"state": RepairOutcome.REBUILT}
    assert bench.stream().state() is state
    assert shown(bench) == before


def test_a_sealed_stream_is_sealed_after_the_repair_of_its_state() -> None:
    bench = grown()
    bench.stream().seal()
    state_is(bench, StreamState.SEALED)


def stuck() -> Bench:
    """A scale stopped at a damaged record, which is repaired."""
    bench = grown()
    flip(bench, key_of(bench, "historyTimeSeriesChunk-4"))
    with pytest.raises(CorruptObject):
        bench.scale_once()
    repair(bench, apply=True)
    return bench


def test_a_state_of_a_stream_that_a_request_may_have_is_not_guessed() -> None:
    bench = stuck()
    flip(bench, key_of(bench, "state"))
    done = repair(bench, apply=True)
    assert outcomes(done) == {"state": RepairOutcome.LOST}
    assert "may have the stream" in done.findings[0].remedy


@pytest.mark.parametrize("other", ["truncation", "segmentsSealedSizeMapShard-3"])
def test_a_state_is_not_guessed_where_another_record_may_say_otherwise(other: str) -> None:
    bench = grown()
    for each in ("state", other):
        flip(bench, key_of(bench, each))
    for _ in range(2):
        assert outcomes(repair(bench, apply=True)) == dict.fromkeys(("state", other), RepairOutcome.LOST)


def test_a_state_is_not_guessed_where_a_shard_of_sizes_is_missing() -> None:
    bench = grown()
    bench.stream().seal()
    flip(bench, key_of(bench, "state"))
    remove(bench, key_of(bench, "segmentsSealedSizeMapShard-3"))
    lost = dict.fromkeys(("state", "segmentsSealedSizeMapShard-3"), RepairOutcome.LOST)
    assert outcomes(repair(bench, apply=True)) == lost


def test_a_state_is_rebuilt_once_the_current_epoch_is() -> None:
    bench = grown()
    before = shown(bench)
    for each in ("state", "currentEpochRecord"):
        flip(bench, key_of(bench, each))
    rebuilt, lost = RepairOutcome.REBUILT, RepairOutcome.LOST
    assert outcomes(repair(bench, apply=True)) == {"currentEpochRecord": rebuilt, "state": lost}
    assert outcomes(repair(bench, apply=True)) == {"state": rebuilt}
    assert shown(bench) == before


# Requests


def test_a_request_that_the_state_names_is_named_when_it_is_gone() -> None:
    bench = stuck()
    request = next(each for each in keys_of(bench) if "/request-" in each)
    sound = bodies(bench)
    remove(bench, request)
    with pytest.raises(IllegalState, match=r"docs/operations/repair\.md"):
        bench.streams().recover_stream(SCOPE, STREAM)
    assert outcomes(repair(bench, apply=True)) == {request.rpartition("/")[2]: RepairOutcome.LOST}
    bench.store.put(request, sound[request])
    flip(bench, request)
    assert outcomes(repair(bench, apply=True)) == {request.rpartition("/")[2]: RepairOutcome.LOST}
    bench.store.put(request, sound[request])
    assert bench.streams().recover_stream(SCOPE, STREAM) == ["scale"]


def test_a_request_that_cannot_be_read_and_has_no_stream_goes() -> None:
    bench = stuck()
    request = next(each for each in keys_of(bench) if "/request-" in each)
    sound = bodies(bench)[request]
    bench.streams().recover_stream(SCOPE, STREAM)
    bench.store.put(request, sound)
    flip(bench, request)
    assert set(outcomes(repair(bench, apply=True)).values()) == {RepairOutcome.REBUILT}
    assert not any("/request-" in each for each in keys_of(bench))


# Sizes


def test_sizes_are_asked_for_where_no_host_holds_the_segments() -> None:
    bench = grown()
    before = shown(bench)
    remove(bench, key_of(bench, "segmentsSealedSizeMapShard-1"))
    hostless = bench.opened(None)
    found = repair_stream(hostless, SCOPE, STREAM, apply=True)
    assert outcomes(found) == {"segmentsSealedSizeMapShard-1": RepairOutcome.LOST}
    assert "3@2" in found.findings[0].remedy
    with pytest.raises(InvalidArgument):
        repair_stream(hostless, SCOPE, STREAM, apply=True, sizes={ids("3@2")[0]: -1})
    sizes = before["shards"][1]
    found = repair_stream(hostless, SCOPE, STREAM, apply=True, sizes=sizes)
    assert outcomes(found) == {"segmentsSealedSizeMapShard-1": RepairOutcome.REBUILT}
    assert shown(bench) == before


# Beside others, and within bounds


def meddling(store: ObjectStore, method: str, key: str, act: Callable[[], object], times: int) -> ObjectStore:
    """Does something when a call of a kind comes, so often."""
    calls = count()

    def meddle(call: StoreCall) -> None:
        if call.operation == method and call.key.endswith(key) and next(calls) < times:
            act()

    return Watched(store, meddle)


def test_what_somebody_else_wrote_meanwhile_stays() -> None:
    bench = grown()
    key = key_of(bench, "historyIndex")
    sound = bench.store.get(key).body
    flip(bench, key)
    store = meddling(bench.store, "put", "/historyIndex", lambda: bench.store.put(key, sound), 1)
    done = repair_stream(bench.streams(store), SCOPE, STREAM, apply=True)
    assert outcomes(done) == {"historyIndex": RepairOutcome.CHANGED}
    assert bench.store.get(key).body == sound


@pytest.mark.parametrize("times", [1, 100])
def test_a_workflow_that_begins_meanwhile_makes_the_repair_look_again(times: int) -> None:
    bench = grown()
    remove(bench, key_of(bench, "commitOrder"))

    def configure() -> None:
        bench.stream().configure(StreamConfiguration(tags=(str(bench.tick()),)))

    store = meddling(bench.store, "get", "/retention", configure, times)
    if times == 1:
        done = repair_stream(bench.streams(store), SCOPE, STREAM, apply=True)
        assert outcomes(done) == {"commitOrder": RepairOutcome.REBUILT}
        return
    with pytest.raises(OperationNotAllowed, match="no change of the state"):
        repair_stream(bench.streams(store), SCOPE, STREAM, apply=True)
    assert outcomes(repair(bench)) == {"commitOrder": RepairOutcome.REBUILDABLE}


def test_what_a_newer_release_may_have_written_is_left() -> None:
    bench = grown()
    key = key_of(bench, "historyTimeSeriesChunk-0")
    body = bytearray(bench.store.get(key).body)
    body[4] = 99
    bench.store.put(key, bytes(body))
    done = repair(bench, apply=True)
    assert outcomes(done) == {"historyTimeSeriesChunk-0": RepairOutcome.LOST}
    assert "upgrade" in done.findings[0].remedy
    assert bench.store.get(key).body == body


def test_much_damage_is_repaired_in_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = grown()
    before = shown(bench)
    for each in keys_of(bench):
        if "segmentSealedEpochPath-" in each:
            remove(bench, each)
    monkeypatch.setattr(findings, "FINDINGS_MAX", 2)
    runs = 0
    while not (done := repair(bench, apply=True)).is_complete:
        assert len(done.findings) == 2
        runs += 1
    assert runs > 2
    assert shown(bench) == before


@pytest.mark.parametrize("root_too", [False, True])
def test_the_index_keeps_its_pieces_whatever_this_process_would_choose(root_too: bool) -> None:
    bench = grown()
    before = shown(bench)
    remove(bench, key_of(bench, "historyIndex-leaf-0"))
    if root_too:
        flip(bench, key_of(bench, "historyIndex"))
    bench.settings = replace(bench.settings, leaf_parts=2 if root_too else 50, part_epochs=2 if root_too else 1_000)
    assert repair(bench, apply=True).count(RepairOutcome.REBUILT) == 1 + root_too
    assert shown(bench) == before


@settings(max_examples=examples(15, few=6), deadline=None)
@given(data=st.data())
def test_any_damage_is_repaired_or_named_and_nothing_becomes_wrong(data: st.DataObject) -> None:
    bench = grown()
    before, original = shown(bench), bodies(bench)
    damaged = data.draw(st.lists(st.sampled_from(keys_of(bench)), min_size=2, max_size=8, unique=True))
    for each in damaged:
        DAMAGES[data.draw(st.sampled_from(["flip", "empty", "removed"]))](bench, each)
    for each in damaged:
        if is_named(each, NOT_MISSED):  # whether it was there is known to nobody
            bench.store.put(each, original[each])
    for _ in range(3 * len(damaged)):  # one record may have to wait for another one
        done = repair(bench, apply=True)
        lost = [each.key for each in done.findings if each.outcome is RepairOutcome.LOST]
        assert set(lost) <= {each.rpartition("/")[2] for each in damaged}
        if len(lost) == len(done.findings):
            for each in damaged:  # from a copy of the bucket
                if each.rpartition("/")[2] in lost[:1]:
                    bench.store.put(each, original[each])
    assert not repair(bench).findings
    assert shown(bench) == before


def test_keys_that_nobody_wrote_as_records_lead_nowhere() -> None:
    bench = grown()
    folder = key_of(bench, "state").rpartition("/")[0]
    for each in ("epochRecord-2000000000", "epochRecord-x", "request-x", "retentionCuts-x", "historyIndex-leaf-x"):
        bench.store.put(f"{folder}/{each}", b"nothing")
    assert not repair(bench, apply=True).findings


def test_a_stream_without_a_layout_is_not_looked_at() -> None:
    bench = grown()
    for each in ("layout", "historyIndex"):
        flip(bench, key_of(bench, each))
    assert outcomes(repair(bench, apply=True)) == {"layout": RepairOutcome.LOST}


def test_only_a_stream_that_is_there_is_repaired() -> None:
    bench = Bench()
    bench.create()
    with pytest.raises(NotInHistory):
        repair_stream(bench.streams(), SCOPE, "other")
    parts = bench.stream().parts
    parts.store.drop_table(parts.stream.metadata_table)
    with pytest.raises(StreamDeleted):
        repair(bench)


def test_sizes_are_not_rebuilt_while_it_is_not_known_which_segments_are_sealed() -> None:
    bench = grown()
    for each in ("segmentsSealedSizeMapShard-0", "epochRecord-1", "historyTimeSeriesChunk-0"):
        flip(bench, key_of(bench, each))
    done = outcomes(repair(bench, apply=True))
    assert done["segmentsSealedSizeMapShard-0"] is RepairOutcome.LOST
    assert "currentEpochRecord" not in done


# Markers of tables, and reader groups


def markers(bench: Bench) -> list[str]:
    """The markers of the stream's tables."""
    start = "accel/tables/" + quote(f"{SCOPE}/{STREAM}/", safe="")
    return [info.key for info in bench.store.list(start) if info.key.endswith("/!table")]


def with_group(bench: Bench) -> Bench:
    """The same stream with a reader group."""
    ReaderGroup.open(bench.stream(), "team")
    return bench


@pytest.mark.parametrize("damage", [remove, empty, flip])
@pytest.mark.parametrize("number", range(4))
def test_a_marker_of_a_table_is_written_again(number: int, damage: Damage) -> None:
    bench = with_group(grown())
    marker = markers(bench)[number]
    damage(bench, marker)
    assert outcomes(repair(bench)) == {"!table": RepairOutcome.REBUILDABLE}
    assert outcomes(repair(bench, apply=True)) == {"!table": RepairOutcome.REBUILT}
    assert outcomes(repair(bench)) == {}
    assert shown(bench) == _shown_of_grown()
    assert list(ReaderGroup.names(bench.stream())) == ["team"]


def test_all_markers_at_once_take_more_than_one_run() -> None:
    bench = with_group(grown())
    for marker in markers(bench):
        remove(bench, marker)
    runs = [repair(bench, apply=True) for _ in range(3)]
    assert [len(each.findings) for each in runs] == [3, 1, 0]
    assert [each.is_complete for each in runs] == [False, False, True]
    assert shown(bench) == _shown_of_grown()


def test_the_record_of_a_group_is_named_where_it_cannot_be_read() -> None:
    bench = with_group(grown())
    flip(bench, key_of(bench, "team"))
    assert outcomes(repair(bench, apply=True)) == {"team": RepairOutcome.LOST}


def test_an_interrupted_deletion_is_not_undone() -> None:
    """It removes a marker before the records of the table."""
    whole = sealed()
    counted = CrashStore(whole.store, None)
    whole.streams(counted).delete_stream(SCOPE, STREAM)
    without_marker = 0
    for number in range(counted.writes):
        bench = sealed()
        with pytest.raises(Crash):
            bench.streams(CrashStore(bench.store, number)).delete_stream(SCOPE, STREAM)
        before = bodies(bench)
        if number:  # before its first write nothing has begun
            with pytest.raises((StreamDeleted, NotInHistory)):
                repair(bench, apply=True)
        assert bodies(bench) == before
        without_marker += bool(keys_of(bench)) and not markers(bench)
    assert without_marker


def sealed() -> Bench:
    bench = Bench()
    bench.create()
    bench.stream().seal()
    return bench
