"""The index of the times at which epochs began: finds the epoch at a given time.

A stream gets a new epoch whenever its segments change; epochs are numbered 0, 1, 2, ... and each begins later than the
previous one. So a list of all times in order is an index: *the position of a time is its epoch*. A stream that changes
once a second has 31,536,000 epochs after a year, so the list is divided into blocks, and a small root contains the
first time of each block:

    |        | epochs           | blocks, by default          | changed later      |
    |--------|------------------|-----------------------------|--------------------|
    | leaves | the oldest       | of 100,000 times            | no                 |
    | parts  | after the leaves | of 1,000 times              | no                 |
    | tail   | the newest       | 1 to 1,000, in the root     | yes, it grows      |

    leaf 0      leaf 1          part 200        part 201        tail
    epochs 0..  from 100,000    from 200,000    from 201,000    202,000, 202,001, 202,002

Only the root is overwritten, so a change of the stream writes a few kilobytes of index, for any length of the list.

Finding an epoch takes a read of the root and of at most one block:

    root: tail, parts, leaves begin at   t >= 7,000 | 5,000 6,000 | 0 2,500
    at 6,400: the last start at or before it is that of the second part; in that part, the last time at or before it

During a change of the stream, its new epoch is in the index already, but the stream is not in that epoch yet. So the
root also contains the number of visible epochs, and no query returns a later one.

**Growth.** A new epoch is added to the tail in the root. If the tail is full, it becomes a part, which is written
*before* the root that contains it. When there are 100 parts, they are to be merged into a leaf, at a separate time and
not while the stream changes: read the parts, write the leaf, then the root with the leaf instead of the parts.

    before              leaf_starts 2   part_starts 100   tail 1,000 times
    append epoch n      write part 300 (the tail), then:
    root                leaf_starts 2   part_starts 101   tail 1 time
    merge               read parts 200 to 299, write leaf 2, then:
    root                leaf_starts 3   part_starts 1     tail 1 time

All steps follow from the root and the times alone, as the position of a time is its epoch. Two processes that carry
them out at the same time, or one that repeats them after a crash, write the same blocks and the same root; each step
first checks whether it is done already, and then changes nothing.

This module computes what to read and what to write; it does not access a store or encode blocks.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from range_index.runs import TYPE_CODE, floor, unpack

PART_EPOCHS: Final = 1_000
LEAF_PARTS: Final = 100
LEAF_EPOCHS_MAX: Final = 1 << 20
"""The maximum size of a block, which is read and written as a whole."""


if TYPE_CHECKING:
    Times: TypeAlias = array[int]
else:
    Times = array  # has no parameters at runtime before Python 3.12


class BlockKind(Enum):
    """The kind of a block, which determines its size."""

    PART = "part"
    LEAF = "leaf"


class Block(NamedTuple):
    """One immutable block: the times of ``epochs`` epochs from ``first_epoch`` on.

    Blocks of a kind are numbered from 0 in the order of their epochs, so leaf 2 consists of the parts 200 to 299.
    """

    kind: BlockKind
    number: int
    epochs: int

    @property
    def first_epoch(self) -> int:
        """The epoch of the first time."""
        return self.number * self.epochs


@dataclass(frozen=True, slots=True)
class BlockTimes:
    """A block with its times, in milliseconds.

    Args:
        block: its kind and number.
        times: when each of its epochs began.

    Raises:
        ValueError: a block of no epochs or with a number below 0, not one time for each epoch, or times that do not
            ascend.

    Complexity: construction is O(its times), without a loop in Python.

    Threads: never changes, and its array must not be changed; any thread may read it.
    """

    block: Block
    times: Times

    def __post_init__(self) -> None:
        if self.block.number < 0 or self.block.epochs < 1:
            raise ValueError(f"expected a block of 1 or more epochs, numbered from 0 on, found {self.block}")
        if len(self.times) != self.block.epochs:
            raise ValueError(f"expected {self.block.epochs} times in {self.block}, found {len(self.times)}")
        check_ascending(self.times)

    @property
    def size_bytes(self) -> int:
        """Memory of the times."""
        return len(self.times) * self.times.itemsize


@dataclass(frozen=True, slots=True)
class EpochTimesRoot:
    """The part of the index that is read first, and the only one that is overwritten. Times are in milliseconds.

    Args:
        tail: times of the newest epochs; never empty, as a stream has an epoch from the beginning.
        part_starts: first time of each part that is not in a leaf yet.
        leaf_starts: first time of each leaf.
        visible_epochs: the number of oldest epochs that queries may return; at least one.
        part_epochs: the number of times of a part, and the maximum of the tail.
        leaf_parts: the number of parts of a leaf.

    Raises:
        ValueError: times that do not ascend, an empty or overfull tail, more visible epochs than there are, or blocks
            that are too small or too large.

    Complexity: construction is O(its times), without a loop in Python.

    Threads: never changes, and its arrays must not be changed; any thread may read it.
    """

    tail: Times
    part_starts: Times = field(default_factory=lambda: array(TYPE_CODE))
    leaf_starts: Times = field(default_factory=lambda: array(TYPE_CODE))
    visible_epochs: int = 1
    part_epochs: int = PART_EPOCHS
    leaf_parts: int = LEAF_PARTS

    def __post_init__(self) -> None:
        if self.part_epochs < 1 or self.leaf_parts < 2:
            raise ValueError(
                f"expected parts of 1 or more epochs and leaves of 2 or more parts, "
                f"found {self.part_epochs} and {self.leaf_parts}"
            )
        if self.leaf_epochs > LEAF_EPOCHS_MAX:
            raise ValueError(f"expected leaves of at most {LEAF_EPOCHS_MAX} epochs, found {self.leaf_epochs}")
        if not 1 <= len(self.tail) <= self.part_epochs:
            raise ValueError(f"expected 1 to {self.part_epochs} times in the tail, found {len(self.tail)}")
        if not 1 <= self.visible_epochs <= self.epochs:
            raise ValueError(f"expected 1 to {self.epochs} visible epochs, found {self.visible_epochs}")
        check_ascending(self.leaf_starts + self.part_starts + self.tail)

    @property
    def leaf_epochs(self) -> int:
        """The number of times of a leaf."""
        return self.part_epochs * self.leaf_parts

    @property
    def tail_first_epoch(self) -> int:
        """The epoch of the first time in the tail; all earlier epochs are in blocks."""
        return len(self.leaf_starts) * self.leaf_epochs + len(self.part_starts) * self.part_epochs

    @property
    def epochs(self) -> int:
        """The number of epochs in the index, visible or not; also the number of the next epoch."""
        return self.tail_first_epoch + len(self.tail)

    @property
    def first_part(self) -> int:
        """The number of the first part that is not in a leaf."""
        return len(self.leaf_starts) * self.leaf_parts

    def part(self, number: int) -> Block:
        """The part of that number, which need not exist."""
        return Block(BlockKind.PART, number, self.part_epochs)

    def leaf(self, number: int) -> Block:
        """The leaf of that number, which need not exist."""
        return Block(BlockKind.LEAF, number, self.leaf_epochs)


def first_root(time_ms: int, *, part_epochs: int = PART_EPOCHS, leaf_parts: int = LEAF_PARTS) -> EpochTimesRoot:
    """The index of a new stream, whose epoch 0 began at ``time_ms``.

    Raises:
        ValueError: parts of no epochs, or leaves of fewer than 2 parts.
    """
    return EpochTimesRoot(array(TYPE_CODE, [time_ms]), part_epochs=part_epochs, leaf_parts=leaf_parts)


def locate(root: EpochTimesRoot, time_ms: int) -> int | Block:
    """Find the epoch at a time in the root, or the block that contains it.

    Complexity: O(log of the times in the root).

    Returns:
        The epoch if the root suffices, with 0 for a time before the first; else the block to be read and passed to
        `epoch_in_block`.

    Source: PDP-32, "Get active segments at a time".
    """
    newest = root.visible_epochs - 1
    if time_ms >= root.tail[0]:
        return min(newest, root.tail_first_epoch + floor(root.tail, len(root.tail), time_ms))
    part = floor(root.part_starts, len(root.part_starts), time_ms)
    leaf = floor(root.leaf_starts, len(root.leaf_starts), time_ms)
    if part < 0 and leaf < 0:
        return 0
    block = root.leaf(leaf) if part < 0 else root.part(root.first_part + part)
    return newest if newest <= block.first_epoch else block


def epoch_in_block(root: EpochTimesRoot, found: BlockTimes, time_ms: int) -> int:
    """The epoch at a time, in the block that `locate` returned.

    Complexity: O(log of the times in the block).

    Args:
        root: the argument of `locate`.
        found: the block that `locate` returned, as it was read.
        time_ms: the argument of `locate`.

    Raises:
        ValueError: another block, or a block that begins after that time.
    """
    block, times = found.block, found.times
    named = locate(root, time_ms)
    if block != named:
        raise ValueError(f"expected {named} for the time {time_ms}, found {block}")
    if times[0] > time_ms:
        raise ValueError(f"expected {block} to begin at {time_ms} or earlier, found {times[0]}")
    return min(root.visible_epochs - 1, block.first_epoch + floor(times, len(times), time_ms))


def check_ascending(times: array[int]) -> None:
    """Do nothing if each time is later than the previous one; O(times), no loop in Python.

    Raises:
        ValueError: a time is not later; the message contains both times.
    """
    column = unpack(times)
    ascends = column[1:] > column[:-1]
    if not ascends.all():
        first = int(ascends.argmin())
        raise ValueError(f"expected ascending times, each once, found {times[first + 1]} after {times[first]}")


class Merge(NamedTuple):
    """A leaf that can be made, and its parts."""

    leaf: Block
    parts: tuple[Block, ...]


class AppendPlan(NamedTuple):
    """The writes for one further epoch: the part, if there is one, then the root."""

    root: EpochTimesRoot
    """The same object if the epoch is in the index already: then there is nothing to write."""

    part: BlockTimes | None
    """The full tail, to be written before the root that contains it as a part."""

    merge: Merge | None
    """The merge that is due after the root is written; it can wait, and `merge_due` returns it again."""


def append(root: EpochTimesRoot, epoch: int, time_ms: int) -> AppendPlan:
    """The writes that add an epoch to the index. The new epoch is not visible yet: see `show_epochs`.

    Complexity: O(times in the root), a few microseconds.

    Args:
        root: as it was read; if the stored root has changed before the write, call this again with the new root.
        epoch: the next epoch, or one that the index has already; an existing epoch with the same time is no change.
        time_ms: when it began, later than the previous epoch.

    Raises:
        ValueError: an epoch after the next one, a time that is not later, or an epoch that began at another time.

    Source: PDP-32, "History time index"; docs/reference/history-records.md.
    """
    if epoch > root.epochs or epoch < 0:
        raise ValueError(f"expected epoch {root.epochs} or an earlier one, found {epoch}")
    if epoch < root.epochs:
        _check_same_time(root, epoch, time_ms)
        return AppendPlan(root, None, merge_due(root))
    if time_ms <= root.tail[-1]:
        raise ValueError(f"expected epoch {epoch} to begin after {root.tail[-1]}, found {time_ms}")
    new = array(TYPE_CODE, [time_ms])
    if len(root.tail) < root.part_epochs:
        longer = replace(root, tail=root.tail + new)
        return AppendPlan(longer, None, merge_due(longer))
    part = BlockTimes(root.part(root.first_part + len(root.part_starts)), root.tail)
    longer = replace(root, tail=new, part_starts=root.part_starts + root.tail[:1])
    return AppendPlan(longer, part, merge_due(longer))


def show_epochs(root: EpochTimesRoot, epochs: int) -> EpochTimesRoot:
    """The root with at least the first ``epochs`` epochs visible, for a stream that has reached them; hides no epoch.

    Returns:
        The same object if they are visible already.

    Raises:
        ValueError: the index has fewer epochs.
    """
    return root if epochs <= root.visible_epochs else replace(root, visible_epochs=epochs)


def merge_due(root: EpochTimesRoot) -> Merge | None:
    """The oldest parts that fill a leaf, if there are enough."""
    if len(root.part_starts) < root.leaf_parts:
        return None
    numbers = range(root.first_part, root.first_part + root.leaf_parts)
    return Merge(root.leaf(len(root.leaf_starts)), tuple(root.part(number) for number in numbers))


def merge_blocks(merge: Merge, parts: Sequence[BlockTimes]) -> BlockTimes:
    """The leaf with its times, to be written before `with_leaf`; O(epochs of a leaf).

    Args:
        merge: the leaf and its parts.
        parts: the parts of the merge with their times, in order.

    Raises:
        ValueError: other parts, or times that do not ascend from one part to the next.
    """
    blocks = tuple(part.block for part in parts)
    if blocks != merge.parts:
        raise ValueError(f"expected {_span(merge.parts)}, found {_span(blocks)}")
    times = array(TYPE_CODE)
    for part in parts:
        times += part.times
    return BlockTimes(merge.leaf, times)


def with_leaf(root: EpochTimesRoot, merge: Merge) -> EpochTimesRoot:
    """The root that contains a leaf, which was written before, instead of its parts.

    After this root is written, the parts may be deleted. If a reader with an older root does not find a part, it reads
    the root again.

    Returns:
        The same object if the root contains the leaf already, as another process has merged it.

    Raises:
        ValueError: a leaf of another index, or a leaf whose parts are not in the root.
    """
    if merge.leaf != root.leaf(merge.leaf.number):
        raise ValueError(f"expected leaves of {root.leaf_epochs} epochs, found {merge.leaf}")
    if merge.leaf.number < len(root.leaf_starts):
        return root
    if merge != merge_due(root):
        found = f"{len(root.leaf_starts)} leaves and {len(root.part_starts)} parts"
        raise ValueError(f"expected the parts of leaf {merge.leaf.number} to be open, found {found}")
    parts = root.part_starts
    return replace(root, leaf_starts=root.leaf_starts + parts[:1], part_starts=parts[root.leaf_parts :])


def _check_same_time(root: EpochTimesRoot, epoch: int, time_ms: int) -> None:
    """Refuse an epoch that began at another time, as far as the root shows: times within a block are not checked."""
    position = epoch - root.tail_first_epoch
    if position >= 0:
        if root.tail[position] != time_ms:
            raise ValueError(f"expected epoch {epoch} to begin at {root.tail[position]}, found {time_ms}")
        return
    place = locate(replace(root, visible_epochs=root.epochs), time_ms)
    if not isinstance(place, Block) or not place.first_epoch <= epoch < place.first_epoch + place.epochs:
        raise ValueError(f"expected the time at which epoch {epoch} began, found {time_ms}, which is in {place}")


def _span(blocks: Sequence[Block]) -> str:
    return f"{len(blocks)} blocks, from {blocks[0]} to {blocks[-1]}" if blocks else "no blocks"
