"""The bytes of a group: read back as written; damage is noticed; the page is right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accel.streams.groups import LEASE, PLACE, READER_GROUP, REPLACED, REPORT, StoredGroup, groups_table
from accel.streams.rules.group_state import ENDED, FREE, READERS_MAX, GroupState, Lease
from loaders.errors import CorruptObject
from loaders.tables.columns import pack_columns
from loaders.tables.records import FormRegistry, form_of
from tests.accel.history.store.bench import Bench
from tests.accel.streams.groups.states import CREATED_MS, cut, group, segment
from tests.docs.pages import section
from tests.examples import examples

FOLDER = Path(__file__).parents[3] / "data" / "reader_group"
GOLDEN = FOLDER / "reader-group-1.bin"
GOLDEN_LEASES = FOLDER / "reader-group-1-leases.bin"


def told() -> GroupState:
    """A segment at its end, two that are read or free, one that waits; one reader lets others go first."""
    segments = [segment("0@0", 0.0, 1 / 3), segment("1@0", 1 / 3, 0.7), segment("2@3", 0.7, 1.0)]
    waiting = segment("5@4", 1 / 3, 1.0)
    state = GroupState.at(cut({"0@0": 2**40, "1@0": 17, "2@3": 0, "5@4": -1}, *segments, waiting))
    state = state.after_join("reader-2").after_join("reader-1").after_acquire("reader-2", np.array([0, 1]))
    state = state.after_finish("reader-2", 0, [], offset=2**40 + 1)
    return state.with_lag("reader-1", 1_500, has_waited=True).with_lag("reader-2", 2**62, has_waited=False)


def test_bytes_of_version_1_are_read_for_ever() -> None:
    assert READER_GROUP.decode(GOLDEN.read_bytes(), "golden") == told()


def leased() -> GroupState:
    """The same with a lease; another reader was replaced, is behind, and gave a segment up."""
    state = told().after_join("reader-2", Lease(2**32 - 1, 0, 10_000)).with_calm("reader-2", is_behind=False)
    for session, host in enumerate(("pod-a", "pod-b"), start=7):
        state = state.after_join("reader-1", Lease(session, 0, 30_000), host=host, now_ms=CREATED_MS + session)
    return state.with_report("reader-1", CREATED_MS + 99).with_limit("reader-1", 2, moved=1)


def test_bytes_with_leases_are_read_for_ever() -> None:
    assert READER_GROUP.decode(GOLDEN_LEASES.read_bytes(), "golden") == leased()
    assert READER_GROUP.encode(leased()) == READER_GROUP.encode(READER_GROUP.decode(GOLDEN_LEASES.read_bytes(), "it"))


def test_equal_groups_have_equal_bytes() -> None:
    assert READER_GROUP.encode(told()) == READER_GROUP.encode(READER_GROUP.decode(GOLDEN.read_bytes(), "golden"))


def test_the_form_names_itself_and_its_version() -> None:
    assert form_of(READER_GROUP.encode(told())) == ("reader-group", 1)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(0, 3)),
    st.integers(0, 5),
    st.none() | st.integers(0, 2**63 - 1),
)
def test_a_group_is_read_back_as_it_was_written(counts: dict[str, int], free: int, lag: int | None) -> None:
    state = group(counts, free) if sum(counts.values()) + free else group(counts, 1)
    for name in counts:
        state = state.with_lag(name, lag, has_waited=bool(free % 2))
    assert READER_GROUP.decode(READER_GROUP.encode(state), "here") == state


def fields() -> StoredGroup:
    stored: StoredGroup = READER_GROUP.decode_fields(READER_GROUP.encode(told()), "here")
    return stored


def places(*owners: int) -> bytes:
    rows = np.zeros(len(owners), dtype=PLACE)
    rows["owner"] = owners
    return pack_columns(rows)


def reports(*rows: tuple[int, int]) -> bytes:
    return pack_columns(np.array([(*row, 0, 0, 0) for row in rows], dtype=REPORT))


def replaced(reader: int) -> bytes:
    return pack_columns(np.array([(reader, 7, 0)], dtype=REPLACED))


def leases(*rows: tuple[int, int, int]) -> bytes:
    return pack_columns(np.array(list(rows), dtype=LEASE))


WRONG: dict[str, dict[str, Any]] = {
    "an owner that is not there": {"places": places(-1, 2, 0, 0)},
    "places of other segments": {"places": places(0, 0)},
    "a reader without a report": {"reports": reports((0, 0))},
    "a mark that is none": {"reports": reports((0, 0), (0, 2))},
    "a lag below 0": {"reports": reports((0, 0), (-2, 0))},
    "a lease below 0": {"leases": leases((1, 0, 0), (1, -1, 0))},
    "a reader without a lease": {"leases": leases((1, 1, 1))},
    "readers in another order": {"readers": ["b", "a"]},
    "a host of nobody": {"hosts": ("pod-a",)},
    "a long host": {"hosts": ("pod-a", "b" * 256)},
    "a predecessor of nobody": {"replaced": replaced(2), "replaced_hosts": ("pod-a",)},
    "a predecessor without a host": {"replaced": replaced(1)},
    "moved segments in another order": {"moved": (1, 0)},
    "too many readers": {
        "readers": [f"{each:05}" for each in range(READERS_MAX + 1)],
        "reports": reports(*[(0, 0)] * (READERS_MAX + 1)),
    },
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_no_group_is_corrupt(what: str) -> None:
    data = READER_GROUP.encode_fields(msgspec.structs.replace(fields(), **WRONG[what]))
    with pytest.raises(CorruptObject, match="'reader-group'"):
        READER_GROUP.decode(data, "here")


def test_a_person_can_look_at_a_group() -> None:
    registry = FormRegistry()
    registry.register(READER_GROUP)
    name, version, shown = registry.decode_any(GOLDEN.read_bytes(), "golden")
    assert (name, version) == ("reader-group", 1)
    assert isinstance(shown, dict)
    assert shown["position"] == {"0@0": 2**40 + 1, "1@0": 17, "2@3": 0, "5@4": -1}
    assert shown["owners"] == ["ended", {"reader": "reader-2"}, None, None]
    assert shown["readers"][0] == {
        "name": "reader-1",
        "lag": 1_500,
        "has_waited": True,
        "lease": {"session": 0, "renewals": 0, "milliseconds": 0},
        "host": "",
        "reported_ms": 0,
        "replaced": [],
        "limit": 0,
        "calm": 0,
    }
    assert shown["segments"][1]["key_start"] == 1 / 3


# docs/reference/events.md

TEXT = section("Reader groups")


def test_the_table_the_form_and_the_bounds_stand_in_the_page() -> None:
    stream = Bench().create()
    table = (
        groups_table(stream).replace("scope/stream", "<scope>/<stream>").replace(str(stream.unique_id), "<stream id>")
    )
    assert f"`{table}`" in TEXT
    assert f"`{READER_GROUP.name}` record" in TEXT
    assert f"At most {READERS_MAX:,} readers" in TEXT
    assert re.search(rf"{FREE}: no member's.*{ENDED}: read to its end", TEXT, re.DOTALL)
    for golden in (GOLDEN, GOLDEN_LEASES):
        assert f"`tests/data/reader_group/{golden.name}`" in TEXT
