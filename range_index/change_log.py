"""What happened to a node's objects lately, so that a view made earlier can catch up with it.

Inserting or removing an object must cost nothing per stream, so no view is told of it. Instead the node counts its
changes, its *revision*, and remembers the last of them. A view knows the revision it was made at; when it is asked for
again, it takes in what was noted since. The memory is bounded: a view that missed more than is remembered has to be
filled anew.
"""

from __future__ import annotations

import sys
from array import array
from typing import Final

from range_index.checking import require

REMEMBERED_MAX: Final = 8192
"""Changes that are noted before the older half of them is forgotten: at most 64 KiB a node."""


class ChangeLog:
    """The latest changes of one node, each with its number.

    An insertion is noted as the object's id, a removal as the complement of it (``~object_id``, which is negative).

    Threads: the caller's lock guards it.
    """

    __slots__ = ("_first", "_noted", "revision")

    def __init__(self) -> None:
        self.revision = 0
        """How many changes there ever were."""
        self._first = 0
        self._noted = array("q")

    def inserted(self, object_id: int) -> None:
        """Note that an object came; O(1) amortised."""
        self._note(object_id)

    def removed(self, object_id: int) -> None:
        """Note that an object went, wherever an entry of it may stand; O(1) amortised."""
        self._note(~object_id)

    def since(self, revision: int) -> array[int] | None:
        """The changes after that revision, oldest first, or None if some of them are forgotten; O(changes)."""
        return self._noted[revision - self._first :] if revision >= self._first else None

    def _note(self, change: int) -> None:
        if len(self._noted) == REMEMBERED_MAX:
            forgotten = REMEMBERED_MAX // 2
            self._noted = self._noted[forgotten:]
            self._first += forgotten
        self._noted.append(change)
        self.revision += 1

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        return sys.getsizeof(self._noted)

    def check(self) -> None:
        """Walk every invariant.

        Raises:
            AssertionError: one is broken; the message has the state.
        """
        noted = len(self._noted)
        require(self._first + noted == self.revision, "every change has a number", self._first, noted, self.revision)
        require(noted <= REMEMBERED_MAX, "the memory is bounded", noted)
