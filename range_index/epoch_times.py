"""When did each epoch begin, and which epoch was it at a given time?

A stream gets a new epoch whenever its segments change; epochs are numbered 0, 1, 2, ... and each begins later than the
one before it. Listing all times in order is therefore an index already: *the position of a time is its epoch*. A stream
that changes once a second has 31,536,000 of them after a year, so the list is cut into blocks, and a small root says
when each block begins:

    |        | epochs           | blocks, by default          | ever changed again |
    |--------|------------------|-----------------------------|--------------------|
    | leaves | the oldest       | of 100,000 times            | no                 |
    | parts  | behind them      | of 1,000 times              | no                 |
    | tail   | the newest       | 1 to 1,000, in the root     | yes, it grows      |

    leaf 0      leaf 1          part 200        part 201        tail
    epochs 0..  from 100,000    from 200,000    from 201,000    202,000, 202,001, 202,002

Only the root is written over, so a change of the stream writes a few kilobytes of index, however long the list is.

To find an epoch one reads the root and at most one block:

    root: tail, parts, leaves begin at   t >= 7,000 | 5,000 6,000 | 0 2,500
    at 6,400: the last start at or before it is that of the second part; in there, the last time at or before it

While a change of the stream is under way its epoch stands in the index already, but the stream has not moved to it yet.
So the root also says how many epochs are visible, and no question is answered with a later one.

**Growth.** An epoch that begins is added to the tail in the root. Where the tail is full already, it becomes a part,
written *before* the root that names it. Once 100 parts stand there, they are due to be merged into a leaf, at a time of
its own and not while the stream changes: read the parts, write the leaf, then the root that names it instead.

    before              leaf_starts 2   part_starts 100   tail 1,000 times
    append epoch n      write part 300 (the tail), then:
    root                leaf_starts 2   part_starts 101   tail 1 time
    merge               read parts 200 to 299, write leaf 2, then:
    root                leaf_starts 3   part_starts 1     tail 1 time

All of this follows from the root and the times alone, as the position of a time is its epoch. Two who carry it out at
once, or one who does it again after a crash, write the same blocks and the same root; each step asks first whether it
is done already, and then changes nothing.

This module computes what to read and what to write; it touches no store and does not know how blocks become bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple

from range_index.runs import TYPE_CODE, floor, unpack

PART_EPOCHS: Final = 1_000
LEAF_PARTS: Final = 100
LEAF_EPOCHS_MAX: Final = 1 << 20
"""A block is read and written as a whole, so none may be larger."""


class BlockKind(Enum):
    """Which of the two sizes a block has."""

    PART = "part"
    LEAF = "leaf"


class Block(NamedTuple):
    """Which times stand together in one immutable value: those of ``epochs`` epochs from ``first_epoch`` on.

    Blocks of a kind are numbered from 0 on by the epochs in them, so leaf 2 is made of the parts 200 to 299.
    """

    kind: BlockKind
    number: int
    epochs: int

    @property
    def first_epoch(self) -> int:
        """The epoch whose time comes first."""
        return self.number * self.epochs


@dataclass(frozen=True, slots=True)
class BlockTimes:
    """A block with its times, in milliseconds.

    Args:
        block: which one.
        times: when each of its epochs began.

    Raises:
        ValueError: not one time for each epoch, or times that do not ascend.

    Complexity: making one is O(its times), without a loop in Python.

    Threads: never changes, nor may its array be changed by those who made it; any thread may read it.
    """

    block: Block
    times: array[int]

    def __post_init__(self) -> None:
        if len(self.times) != self.block.epochs:
            raise ValueError(f"expected {self.block.epochs} times in {self.block}, found {len(self.times)}")
        check_ascending(self.times)

    @property
    def size_bytes(self) -> int:
        """What the times take in memory."""
        return len(self.times) * self.times.itemsize


@dataclass(frozen=True, slots=True)
class EpochTimesRoot:
    """The part of the index that is read first, and the only one that is written over. Times are in milliseconds.

    Args:
        tail: times of the newest epochs; never empty, as a stream has an epoch from the beginning.
        part_starts: first time of each part that is not in a leaf yet.
        leaf_starts: first time of each leaf.
        visible_epochs: how many of the oldest epochs may be told to those who ask; at least one.
        part_epochs: times of one part, and the most that the tail has.
        leaf_parts: parts of one leaf.

    Raises:
        ValueError: times that do not ascend, an empty or overfull tail, more epochs visible than there are, or blocks
            that are too small or too large.

    Complexity: making one is O(its times), without a loop in Python.

    Threads: never changes, nor may its arrays be changed by those who made them; any thread may read it.
    """

    tail: array[int]
    part_starts: array[int] = field(default_factory=lambda: array(TYPE_CODE))
    leaf_starts: array[int] = field(default_factory=lambda: array(TYPE_CODE))
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
        """Times of one leaf."""
        return self.part_epochs * self.leaf_parts

    @property
    def tail_first_epoch(self) -> int:
        """The epoch whose time comes first in the tail; all before it stand in blocks."""
        return len(self.leaf_starts) * self.leaf_epochs + len(self.part_starts) * self.part_epochs

    @property
    def epochs(self) -> int:
        """How many epochs the index has, visible or not; also the number of the next one."""
        return self.tail_first_epoch + len(self.tail)

    @property
    def first_part(self) -> int:
        """The number of the first part that is not in a leaf."""
        return len(self.leaf_starts) * self.leaf_parts

    def part(self, number: int) -> Block:
        """The part of that number; it need not be there."""
        return Block(BlockKind.PART, number, self.part_epochs)

    def leaf(self, number: int) -> Block:
        """The leaf of that number; it need not be there."""
        return Block(BlockKind.LEAF, number, self.leaf_epochs)


def first_root(time_ms: int, *, part_epochs: int = PART_EPOCHS, leaf_parts: int = LEAF_PARTS) -> EpochTimesRoot:
    """The index of a new stream, whose epoch 0 began at ``time_ms``.

    Raises:
        ValueError: parts of no epochs, or leaves of fewer than 2 parts.
    """
    return EpochTimesRoot(array(TYPE_CODE, [time_ms]), part_epochs=part_epochs, leaf_parts=leaf_parts)


def locate(root: EpochTimesRoot, time_ms: int) -> int | Block:
    """Find the epoch at a time in the root, or the block that has it.

    Complexity: O(log of the times in the root).

    Returns:
        The epoch, where the root alone can tell: 0 for a time before the first; else the block to be read and given to
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
    """The epoch at a time, in the block that `locate` named.

    Complexity: O(log of the times in the block).

    Args:
        root: the one that `locate` was asked with.
        found: the block that it named, as it was read.
        time_ms: the same time.

    Raises:
        ValueError: another block, or one that begins after that time.
    """
    block, times = found.block, found.times
    named = locate(root, time_ms)
    if block != named:
        raise ValueError(f"expected {named} for the time {time_ms}, found {block}")
    if times[0] > time_ms:
        raise ValueError(f"expected {block} to begin at {time_ms} or earlier, found {times[0]}")
    return min(root.visible_epochs - 1, block.first_epoch + floor(times, len(times), time_ms))


def check_ascending(times: array[int]) -> None:
    """Do nothing if each time is later than the one before it; O(times), no loop in Python.

    Raises:
        ValueError: one is not; both are named.
    """
    column = unpack(times)
    ascends = column[1:] > column[:-1]
    if not ascends.all():
        first = int(ascends.argmin())
        raise ValueError(f"expected ascending times, each once, found {times[first + 1]} behind {times[first]}")


class Merge(NamedTuple):
    """A leaf that can be made, and the parts it is made of."""

    leaf: Block
    parts: tuple[Block, ...]


class AppendPlan(NamedTuple):
    """What to do for one more epoch: write the part, if there is one, then the root."""

    root: EpochTimesRoot
    """The very same object if the epoch stands in the index already: then there is nothing to write."""

    part: BlockTimes | None
    """A tail that was full, to be written before the root that names it."""

    merge: Merge | None
    """Due once the root is written; it can wait, and `merge_due` tells it again."""


def append(root: EpochTimesRoot, epoch: int, time_ms: int) -> AppendPlan:
    """What to write so that the index has one more epoch. The new epoch is not visible yet: see `show_epochs`.

    Complexity: O(times in the root), a few microseconds.

    Args:
        root: as it was read; a caller that finds another one there by now asks again with that one.
        epoch: the next one, or one that the index has already; the same time again is no change.
        time_ms: when it began, later than the epoch before it.

    Raises:
        ValueError: an epoch beyond the next one, a time that is not later, or an epoch that began at another time.

    Source: PDP-32, "History time index"; docs/reference/history-records.md.
    """
    if epoch > root.epochs or epoch < 0:
        raise ValueError(f"expected epoch {root.epochs} or one before it, found {epoch}")
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
    """The root after the stream has moved on: at least the first ``epochs`` epochs are visible. It never hides one.

    Returns:
        The very same object where they are visible already.

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
        merge: which leaf.
        parts: those that it names, in their order.

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
    """The root that names a leaf, once it is written, in place of its parts.

    The parts may be deleted then. A reader who holds an older root and finds a part gone reads the root again.

    Returns:
        The very same object where the leaf is named already, as another one was quicker.

    Raises:
        ValueError: a leaf of another index, or one whose parts are not there.
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
    """Refuse an epoch that began at another time, as far as the root can tell: within a block, it cannot."""
    position = epoch - root.tail_first_epoch
    if position >= 0:
        if root.tail[position] != time_ms:
            raise ValueError(f"expected epoch {epoch} to begin at {root.tail[position]}, found {time_ms}")
        return
    place = locate(replace(root, visible_epochs=root.epochs), time_ms)
    if not isinstance(place, Block) or not place.first_epoch <= epoch < place.first_epoch + place.epochs:
        raise ValueError(f"expected the time at which epoch {epoch} began, found {time_ms}, which lies in {place}")


def _span(blocks: Sequence[Block]) -> str:
    return f"{len(blocks)} blocks, from {blocks[0]} to {blocks[-1]}" if blocks else "no blocks"
