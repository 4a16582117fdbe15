"""Counters: keys that hold the next free id.

A process that needs ids raises a counter by a whole block and allocates ids from memory (`IdBlocks`). When the process
dies, the rest of its block is lost, which costs nothing: ids are 63 bits long. A forked process has no ids until it
takes its own block: those in memory belong to its parent. A counter is created once and never again. A missing counter
was deleted; a counter that is not above an id in use was restored from an older version. Both are errors, because their
next ids are already in use (`check_counter`).
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final

from loaders.errors import AccelError, TableMissing
from loaders.lifetime import PerProcess
from loaders.tables.typed_key import TypedKey
from loaders.versions import Version, Versioned

IDS_AT_ONCE_MAX: Final = 1 << 20


def check_counter(now: int | None, highest_id: int, where: str, damaged: Callable[[str], AccelError]) -> int:
    """The next free id of a counter that was read after the ids in use.

    Args:
        now: the counter's number; None = the counter is missing.
        highest_id: the highest id in use that was seen; -1 = none was.
        where: the counter, for errors.
        damaged: returns the error.

    Raises:
        The error of `damaged`: there is no counter, or it is not above an id in use.
    """
    if now is None:
        raise damaged(f"expected a counter in {where}, found none: it was deleted")
    if now <= highest_id:
        expected = f"a number above {highest_id}, the highest id in use"
        raise damaged(f"{where}: expected {expected}, found {now}: it went back")
    return now


class _Free:
    """The ids that one process has not yet allocated, the highest id in use, and its last write of the counter."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.blocks: list[range] = []
        self.highest_id = -1
        self.written: Version | None = None


class IdBlocks:
    """Allocates ids of one counter, each once. Threads: any; no lock is held over I/O.

    Args:
        counter: the counter.
        block: smallest number of ids that one write takes.
        damaged: returns the error for a counter that is missing, or is not above the ids in use.
    """

    def __init__(self, counter: TypedKey[int], block: int, damaged: Callable[[str], AccelError]) -> None:
        self._counter = counter
        self._block = block
        self._damaged = damaged
        self._free = PerProcess("ids", _Free)

    def note(self, highest_id: int) -> None:
        """Record an id in use: a counter that is not above it is refused from now on."""
        with (free := self._free()).lock:
            free.highest_id = max(free.highest_id, highest_id)

    def refuse_lost(self) -> None:
        """Check that the counter exists and is above the ids in use that were seen. One request.

        Raises:
            The error of `damaged`: the counter is missing, not above these ids, or not a later version than was written
                here.
            StoreError, TableError, CorruptObject, FormatTooNew: it cannot be read.
        """
        self._read(self._highest_id())

    def take(self, count: int = 1) -> list[int]:
        """Return `count` new ids, ascending. No request while the block lasts, otherwise two.

        Raises:
            ValueError: a count below 1, or above 1,048,576.
            The error of `damaged`: the counter was deleted, is not above the ids in use that were seen, or does not
                follow from the last write of this process.
            StoreError, TableError: the counter could not be raised.
        """
        if not 1 <= count <= IDS_AT_ONCE_MAX:
            raise ValueError(f"expected 1 to {IDS_AT_ONCE_MAX} ids at once, found {count}")
        while True:
            taken = self._take_free(count)
            if taken is not None:
                return list(taken)
            block = self._allocate(max(count, self._block))
            with (free := self._free()).lock:
                free.blocks.append(block)

    def free_now(self) -> int:
        """Number of ids that can be allocated without a request."""
        with (free := self._free()).lock:
            return max((len(block) for block in free.blocks), default=0)

    def _highest_id(self) -> int:
        with (free := self._free()).lock:
            return free.highest_id

    def _take_free(self, count: int) -> range | None:
        with (free := self._free()).lock:
            for at, block in enumerate(free.blocks):
                if len(block) >= count:
                    free.blocks[at : at + 1] = [rest for rest in [block[count:]] if rest]
                    return block[:count]
        return None

    def _allocate(self, count: int) -> range:
        highest_id = self._highest_id()

        # Called again after a lost reply, it takes another block; the first block is lost, which costs nothing.
        def raised(now: int | None) -> int:
            return check_counter(now, highest_id, self._counter.where, self._damaged) + count

        try:
            now = self._read(highest_id)
            after = self._counter.change(raised, seen=now)
        except TableMissing as error:
            raise self._damaged(f"expected a counter in {self._counter.where}, found no such table") from error
        with (free := self._free()).lock:
            if free.written is None or free.written.sequence < after.version.sequence:
                free.written = after.version
        return range(after.value - count, after.value)

    def _read(self, highest_id: int) -> Versioned[int] | None:
        """The stored counter; it must follow from the last write of this process, or another has the same ids."""
        with (free := self._free()).lock:
            written = free.written
        now = self._counter.read()
        check_counter(None if now is None else now.value, highest_id, self._counter.where, self._damaged)
        if now is not None and written is not None and not now.version.follows(written):
            expected = f"version {written.sequence} ({written.nonce.hex()}), which this process wrote, or a later one"
            found = f"{now.version.sequence} ({now.version.nonce.hex()})"
            raise self._damaged(
                f"{self._counter.where}: expected {expected}, found {found}: ids may have been given out twice; was it "
                "put back, or are conditions of writes ignored (accel doctor)?"
            )
        return now
