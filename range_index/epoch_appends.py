"""How the index of epoch times grows: one epoch at a time, a part now and then, a leaf once in a while.

An epoch that begins is added to the tail in the root (see epoch_times). Where the tail is full already, it becomes a
part, written *before* the root that names it. Once 100 parts stand there, they are due to be merged into a leaf, at a
time of its own and not while the stream changes: read the parts, write the leaf, then the root that names it instead.

    before              leaf_starts 2   part_starts 100   tail 1,000 times
    append epoch n      write part 300 (the tail), then:
    root                leaf_starts 2   part_starts 101   tail 1 time
    merge               read parts 200 to 299, write leaf 2, then:
    root                leaf_starts 3   part_starts 1     tail 1 time

All of this follows from the root and the times alone, as the position of a time is its epoch. Two who carry it out at
once, or one who does it again after a crash, write the same blocks and the same root; each step asks first whether it
is done already, and then changes nothing.

These functions compute what to write; they neither read nor write.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from range_index.epoch_times import Block, BlockTimes, EpochTimesRoot, locate
from range_index.runs import TYPE_CODE

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        root: as it was read; whoever finds that another one stands there by now asks again with that one.
        epoch: the next one, or one that the index has already; the same time again is no change.
        time_ms: when it began, later than the epoch before it.

    Raises:
        ValueError: an epoch beyond the next one, a time that is not later, or an epoch that began at another time.

    Source: PDP-32, "History time index"; docs/formats.md, "Stream history".
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
    """The oldest parts that fill a leaf, if there are so many."""
    if len(root.part_starts) < root.leaf_parts:
        return None
    numbers = range(root.first_part, root.first_part + root.leaf_parts)
    return Merge(root.leaf(len(root.leaf_starts)), tuple(root.part(number) for number in numbers))


def merged(merge: Merge, parts: Sequence[BlockTimes]) -> BlockTimes:
    """The leaf with its times, to be written before `with_leaf`; O(epochs of a leaf).

    Args:
        merge: which leaf.
        parts: those that it names, in their order.

    Raises:
        ValueError: other parts, or times that do not ascend from one part to the next.
    """
    found = tuple(part.block for part in parts)
    if found != merge.parts:
        raise ValueError(f"expected {_span(merge.parts)}, found {_span(found)}")
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
