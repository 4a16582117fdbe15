"""The index of times, compared with the times in the records of epochs, and rebuilt from them.

Times come one after the other, as the epochs are walked through; what is held at a time is one leaf's times, and the
first time of each part: 8 bytes for 1,000 epochs.

How the index is cut into blocks stands in its root alone. Of a root that cannot be read it follows from the blocks that
are there; without any, a new root is cut as this process cuts those of new streams.
"""

from __future__ import annotations

from array import array
from dataclasses import replace

from accel.history.store import places
from accel.history.store.cell import Inspected
from accel.history.store.parts import StreamParts
from accel.history.store.repair_findings import Findings
from range_index.epoch_times import Block, BlockKind, BlockTimes, EpochTimesRoot
from range_index.runs import TYPE_CODE

_SOURCE = "the times of the epoch records"


class TimesRepair:
    """Compares one stream's index of times. Threads: one.

    Args:
        parts: of the stream.
        findings: takes what is wrong.
        found: the root, as it was read.
        visible: epochs that the stream has, as far as that is known before they are walked through.

    Attributes:
        count: epochs whose times have come.
    """

    def __init__(self, parts: StreamParts, findings: Findings, found: Inspected[EpochTimesRoot], visible: int) -> None:
        self._cells = parts.cells
        self._findings = findings
        self._found = found
        root = found.value
        self._root = root if root is not None and root.epochs >= visible else None
        self._part_epochs, self._leaf_parts = _pieces(parts) if root is None else (root.part_epochs, root.leaf_parts)
        self._starts = array(TYPE_CODE)
        self._times = array(TYPE_CODE)  # of the leaf that is being filled
        self.count = 0

    def add(self, time_ms: int) -> None:
        """The time of the next epoch."""
        if len(self._times) == self._leaf_epochs:
            self._check_leaf()
            self._times = array(TYPE_CODE)
        if self.count % self._part_epochs == 0:
            self._starts.append(time_ms)
        self._times.append(time_ms)
        self.count += 1

    def finish(self, visible: int) -> None:
        """All epochs have come.

        Args:
            visible: so many of them the stream has.
        """
        full_parts = (len(self._times) - 1) // self._part_epochs
        first = (self.count - len(self._times)) // self._part_epochs
        for number in range(first, first + full_parts):
            self._check_part(number)
        if self._root is None:
            leaves = first // self._leaf_parts
            self._rebuild_root(self._expected(leaves, first + full_parts, self.count, visible))
            return
        root, parts = self._root, self._root_parts
        if parts * self._part_epochs < self.count - len(self._times) and root.epochs < self.count:
            return  # a change is under way, and has written more epochs than the root names
        if root.epochs > self.count:
            self._rebuild_root(self._expected(first // self._leaf_parts, first + full_parts, self.count, visible))
            return
        expected = self._expected(len(root.leaf_starts), parts, root.epochs, max(visible, root.visible_epochs))
        if replace(expected, visible_epochs=root.visible_epochs) != root:
            self._rebuild_root(expected)

    @property
    def _root_parts(self) -> int:
        """Parts that the root names, those of its leaves included."""
        return 0 if self._root is None else (self._root.epochs - 1) // self._part_epochs

    @property
    def _leaf_epochs(self) -> int:
        return self._part_epochs * self._leaf_parts

    def _rebuild_root(self, root: EpochTimesRoot) -> None:
        problem = "" if self._found.value is None else f"expected {root.epochs} epochs with their times, found others"
        self._findings.rebuild(self._cells.times(), self._found, root, _SOURCE, problem)

    def _expected(self, leaves: int, parts: int, epochs: int, visible: int) -> EpochTimesRoot:
        """The root with so many leaves and so many parts in all, for so many epochs."""
        open_parts = self._starts[leaves * self._leaf_parts : parts]
        behind = self.count - len(self._times)  # epochs before those that are held
        return EpochTimesRoot(
            tail=self._times[parts * self._part_epochs - behind : epochs - behind],
            part_starts=open_parts,
            leaf_starts=self._starts[: leaves * self._leaf_parts : self._leaf_parts],
            visible_epochs=visible,
            part_epochs=self._part_epochs,
            leaf_parts=self._leaf_parts,
        )

    def _check_leaf(self) -> None:
        number = self.count // self._leaf_epochs - 1
        if self._root is None or number < len(self._root.leaf_starts):
            self._check(Block(BlockKind.LEAF, number, self._leaf_epochs), self._times)
            return
        for part in range(number * self._leaf_parts, (number + 1) * self._leaf_parts):
            self._check_part(part)

    def _check_part(self, number: int) -> None:
        if self._root is not None and number >= self._root_parts:
            return
        start = number * self._part_epochs - (self.count - len(self._times))
        self._check(Block(BlockKind.PART, number, self._part_epochs), self._times[start : start + self._part_epochs])

    def _check(self, block: Block, times: array[int]) -> None:
        cell, wanted = self._cells.times_block(block), BlockTimes(block, times)
        found = cell.inspect()
        if found.value != wanted:
            problem = "" if found.value is None else "expected the times of its epochs, found others"
            self._findings.rebuild(cell, found, wanted, _SOURCE, problem)


def _pieces(parts: StreamParts) -> tuple[int, int]:
    """How the index is cut: epochs of a part, and parts of a leaf."""
    settings = parts.store.settings
    sizes = {kind: _block_epochs(parts, kind) for kind in BlockKind}
    leaf, part = sizes[BlockKind.LEAF], sizes[BlockKind.PART] or settings.part_epochs
    return (part, settings.leaf_parts) if leaf is None or leaf % part else (part, leaf // part)


def _block_epochs(parts: StreamParts, kind: BlockKind) -> int | None:
    """How many epochs a block of a kind has, as the first one says that can be read."""
    prefix = f"{places.TIMES_ROOT}-{kind.value}-"
    ends = (key.removeprefix(prefix) for key in parts.cells.metadata.keys(prefix))
    for number in map(int, filter(str.isdecimal, ends)):
        found = parts.cells.times_block(Block(kind, number, 0)).inspect().value
        if found is not None:
            return found.block.epochs
    return None
