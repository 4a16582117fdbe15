"""The index of epoch times answers like a list of all times, however it is cut into blocks and whoever repeats what."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from range_index.epoch_times import (
    AppendPlan,
    Block,
    BlockKind,
    BlockTimes,
    EpochTimesRoot,
    Merge,
    append,
    epoch_in_block,
    first_root,
    locate,
    merge_blocks,
    merge_due,
    show_epochs,
    with_leaf,
)

gaps = st.lists(st.integers(1, 5), max_size=60)
part_sizes = st.sampled_from([1, 2, 3, 7])
leaf_sizes = st.sampled_from([2, 3])


class Index:
    """The index as a store would hold it: the root and the blocks that were written; and the list it stands for."""

    def __init__(self, start_ms: int, part_epochs: int = 2, leaf_parts: int = 2) -> None:
        self.root = first_root(start_ms, part_epochs=part_epochs, leaf_parts=leaf_parts)
        self.blocks: dict[Block, BlockTimes] = {}
        self.times = [start_ms]
        self.reads = 0

    def write(self, found: BlockTimes) -> None:
        assert self.blocks.setdefault(found.block, found) == found, "what is immutable is only ever written alike"

    def append(self, time_ms: int) -> AppendPlan:
        plan = append(self.root, len(self.times), time_ms)
        if plan.part is not None:
            self.write(plan.part)
        self.root = plan.root
        self.times.append(time_ms)
        return plan

    def merge(self, merge: Merge) -> None:
        self.write(merge_blocks(merge, [self.blocks[block] for block in merge.parts]))
        self.root = with_leaf(self.root, merge)

    def merge_all(self) -> None:
        while (merge := merge_due(self.root)) is not None:
            self.merge(merge)

    def show_all(self) -> None:
        self.root = show_epochs(self.root, len(self.times))

    def epoch_at(self, time_ms: int) -> int:
        place = locate(self.root, time_ms)
        if isinstance(place, int):
            return place
        self.reads += 1
        return epoch_in_block(self.root, self.blocks[place], time_ms)

    def plain_epoch_at(self, time_ms: int) -> int:
        visible = self.times[: self.root.visible_epochs]
        return max(0, bisect_right(visible, time_ms) - 1)

    def agrees(self) -> None:
        for time_ms in range(self.times[0] - 2, self.times[-1] + 3):
            assert self.epoch_at(time_ms) == self.plain_epoch_at(time_ms), time_ms


def index_of(times: list[int], part_epochs: int = 2, leaf_parts: int = 2) -> Index:
    """All of these epochs visible, no leaf made."""
    index = Index(times[0], part_epochs, leaf_parts)
    for time_ms in times[1:]:
        index.append(time_ms)
    index.show_all()
    return index


@given(gaps, part_sizes, leaf_sizes, st.data())
def test_every_time_finds_its_epoch_wherever_it_stands(
    steps: list[int], part_epochs: int, leaf_parts: int, data: st.DataObject
) -> None:
    index = Index(100, part_epochs, leaf_parts)
    for step in steps:
        index.append(index.times[-1] + step)
        index.root = show_epochs(index.root, data.draw(st.integers(1, len(index.times)), "visible"))
        if data.draw(st.booleans(), "merge"):
            index.merge_all()
    index.agrees()


@given(gaps, part_sizes, leaf_sizes)
def test_the_root_counts_every_epoch_once(steps: list[int], part_epochs: int, leaf_parts: int) -> None:
    index = index_of([100, *(100 + np.cumsum(steps)).tolist()], part_epochs, leaf_parts)
    for _ in range(2):
        in_blocks = len(index.root.leaf_starts) * part_epochs * leaf_parts + len(index.root.part_starts) * part_epochs
        assert index.root.tail_first_epoch == in_blocks
        assert index.root.epochs == len(index.times) == in_blocks + len(index.root.tail)
        index.merge_all()
    assert len(index.root.part_starts) < leaf_parts


@given(gaps.filter(len), part_sizes, st.booleans(), st.data())
def test_an_epoch_appended_again_changes_nothing(
    steps: list[int], part_epochs: int, merged: bool, data: st.DataObject
) -> None:
    index = index_of([100, *(100 + np.cumsum(steps)).tolist()], part_epochs)
    if merged:
        index.merge_all()
    epoch = data.draw(st.integers(0, len(index.times) - 1))
    again = append(index.root, epoch, index.times[epoch])
    assert again.root is index.root
    assert again.part is None
    assert again.merge == merge_due(index.root)


@given(gaps, part_sizes)
def test_whoever_repeats_a_step_after_a_crash_writes_the_same(steps: list[int], part_epochs: int) -> None:
    index = Index(0, part_epochs)
    for step in steps:
        before, time_ms = index.root, index.times[-1] + step
        first = index.append(time_ms)
        assert append(before, len(index.times) - 1, time_ms) == first
        assert append(first.root, len(index.times) - 1, time_ms).root is first.root
        if first.merge is not None:
            index.merge(first.merge)
            assert with_leaf(index.root, first.merge) is index.root
            assert with_leaf(first.root, first.merge) == index.root


def test_a_part_is_written_when_the_tail_is_full_and_not_before() -> None:
    index = Index(0, part_epochs=3)
    assert [index.append(time_ms).part for time_ms in (10, 20)] == [None, None]
    plan = index.append(30)
    assert plan.part == BlockTimes(Block(BlockKind.PART, 0, 3), array("q", [0, 10, 20]))
    assert (plan.root.part_starts, plan.root.tail) == (array("q", [0]), array("q", [30]))


def test_a_merge_may_come_late_while_parts_pile_up() -> None:
    index = index_of(list(range(0, 200, 10)), part_epochs=2, leaf_parts=3)
    assert len(index.root.part_starts) == 9
    index.agrees()
    merge = merge_due(index.root)
    assert merge is not None
    assert merge.leaf == Block(BlockKind.LEAF, 0, 6)
    assert [block.number for block in merge.parts] == [0, 1, 2]
    index.merge_all()
    assert (len(index.root.leaf_starts), len(index.root.part_starts)) == (3, 0)
    index.agrees()


def test_appends_go_on_while_a_leaf_is_made() -> None:
    index = index_of(list(range(0, 100, 10)))
    merge = merge_due(index.root)
    assert merge is not None
    for time_ms in range(100, 150, 10):
        index.append(time_ms)
    index.merge(merge)
    index.show_all()
    index.agrees()


def test_history_gap_between_chunks() -> None:
    """A time between the last epoch of one block and the first of the next belongs to the former."""
    for with_leaves in (False, True):
        index = index_of([100, 200, 300, 400, 500, 600, 700], part_epochs=2)
        if with_leaves:
            index.merge_all()
        asked = [99, 100, 199, 200, 250, 299, 300, 399, 400, 450, 499, 500, 550, 650, 9_999]
        assert [index.epoch_at(time_ms) for time_ms in asked] == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6]


def test_a_time_during_a_change_never_shows_an_epoch_that_is_not_current_yet() -> None:
    """Pitfall D9: a time told an epoch beyond the current one while a scale ran."""
    index = index_of([100, 200], part_epochs=1)
    index.append(300)
    index.append(400)
    assert [index.epoch_at(time_ms) for time_ms in (250, 300, 400, 999)] == [1, 1, 1, 1]
    assert index.reads == 0, "an answer that is known takes no reading"
    index.root = show_epochs(index.root, 3)
    assert [index.epoch_at(time_ms) for time_ms in (250, 300, 400, 999)] == [1, 2, 2, 2]


def test_what_was_shown_is_never_hidden_again() -> None:
    root = index_of([100, 200, 300]).root
    assert show_epochs(root, 2) is root
    with pytest.raises(ValueError, match="1 to 3 visible epochs, found 4"):
        show_epochs(root, 4)


def test_the_newest_epochs_take_no_read_and_any_other_takes_one() -> None:
    index = index_of(list(range(0, 1000, 10)), part_epochs=7, leaf_parts=3)
    index.merge_all()
    newest = index.root.tail_first_epoch
    for epoch in range(100):
        index.reads = 0
        assert index.epoch_at(epoch * 10 + 3) == epoch
        assert index.reads == (epoch < newest)


@pytest.mark.parametrize(
    ("epoch", "time_ms", "complaint"),
    [
        (6, 700, "expected epoch 5 or an earlier one, found 6"),
        (-1, 700, "expected epoch 5 or an earlier one, found -1"),
        (5, 500, "expected epoch 5 to begin after 500, found 500"),
        (4, 501, "expected epoch 4 to begin at 500, found 501"),
        (1, 300, "expected the time at which epoch 1 began, found 300"),
        (1, 500, "expected the time at which epoch 1 began, found 500"),
        (0, 99, "expected the time at which epoch 0 began, found 99"),
    ],
)
def test_an_epoch_that_does_not_fit_is_refused(epoch: int, time_ms: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        append(index_of([100, 200, 300, 400, 500]).root, epoch, time_ms)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tail": array("q")}, "expected 1 to 2 times in the tail, found 0"),
        ({"tail": array("q", [500, 600, 700])}, "expected 1 to 2 times in the tail, found 3"),
        ({"tail": array("q", [500, 500])}, "expected ascending times, each once, found 500 after 500"),
        ({"part_starts": array("q", [100, 500])}, "found 500 after 500"),
        ({"leaf_starts": array("q", [100])}, "found 100 after 100"),
        ({"visible_epochs": 0}, "expected 1 to 5 visible epochs, found 0"),
        ({"visible_epochs": 6}, "expected 1 to 5 visible epochs, found 6"),
        ({"part_epochs": 0}, "expected parts of 1 or more epochs"),
        ({"leaf_parts": 1}, "leaves of 2 or more parts"),
    ],
)
def test_a_root_that_contradicts_itself_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(index_of([100, 200, 300, 400, 500]).root, **changes)


@pytest.mark.parametrize("times", [[], [100], [100, 200, 300], [200, 200], [200, 100]])
def test_a_block_has_one_ascending_time_for_each_of_its_epochs(times: list[int]) -> None:
    with pytest.raises(ValueError, match=r"expected (2 times in Block|ascending times)"):
        BlockTimes(Block(BlockKind.PART, 0, 2), array("q", times))


def test_another_block_than_the_one_that_was_named_is_refused() -> None:
    index = index_of([100, 200, 300, 400, 500])
    block = locate(index.root, 250)
    assert block == Block(BlockKind.PART, 0, 2)
    with pytest.raises(ValueError, match=r"expected Block.*number=0.* for the time 250, found Block.*number=1"):
        epoch_in_block(index.root, index.blocks[block._replace(number=1)], 250)
    with pytest.raises(ValueError, match="to begin at 250 or earlier, found 251"):
        epoch_in_block(index.root, BlockTimes(block, array("q", [251, 252])), 250)


def test_a_leaf_is_made_of_its_own_parts_alone() -> None:
    index = index_of([100, 200, 300, 400, 500])
    merge = merge_due(index.root)
    assert merge is not None
    parts = [index.blocks[block] for block in merge.parts]
    for wrong in ([], parts[:1], parts[::-1]):
        with pytest.raises(ValueError, match=r"expected 2 blocks, from Block.*number=0.*, found"):
            merge_blocks(merge, wrong)
    swapped = [BlockTimes(merge.parts[0], array("q", [400, 500])), parts[1]]
    with pytest.raises(ValueError, match="found 300 after 500"):
        merge_blocks(merge, swapped)


def test_a_leaf_is_named_only_where_its_parts_were() -> None:
    index = index_of([100, 200, 300, 400, 500])
    merge = merge_due(index.root)
    assert merge is not None
    with pytest.raises(ValueError, match="expected the parts of leaf 0 to be open, found 0 leaves and 0 parts"):
        with_leaf(first_root(100, part_epochs=2, leaf_parts=2), merge)
    with pytest.raises(ValueError, match="expected leaves of 6 epochs"):
        with_leaf(first_root(100, part_epochs=3, leaf_parts=2), merge)


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_a_leaf_of_100000_jittered_seconds_is_searched_exactly(seed: int) -> None:
    chance = np.random.default_rng(seed)
    times = np.arange(100_000) * 1_000 + chance.integers(-200, 201, 100_000)
    root = EpochTimesRoot(array("q", [10**9]), leaf_starts=array("q", [int(times[0])]), visible_epochs=100_001)
    leaf = BlockTimes(Block(BlockKind.LEAF, 0, 100_000), array("q", times.tobytes()))
    for asked in chance.integers(times[0], 10**8, 20).tolist():
        block = locate(root, asked)
        assert block == leaf.block
        assert epoch_in_block(root, leaf, asked) == np.searchsorted(times, asked, side="right") - 1
