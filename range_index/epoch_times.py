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

Only the root is written over, so a change of the stream writes a few kilobytes of index, however long the list is: see
epoch_appends.

To find an epoch one reads the root and at most one block:

    root: tail, parts, leaves begin at   t >= 7,000 | 5,000 6,000 | 0 2,500
    at 6,400: the last start at or before it is that of the second part; in there, the last time at or before it

While a change of the stream is under way its epoch stands in the index already, but the stream has not moved to it yet.
So the root also says how many epochs are visible, and no question is answered with a later one.

This module computes; it reads no store and does not know how the blocks are turned into bytes.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
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
        visible_epochs: so many of the oldest epochs may be told to those who ask; at least one.
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
