"""Reads those segments of a stream that a group gives to this reader.

    group = ReaderGroup.open(stream, "billing")
    with GroupReader(stream, source, group, "reader-1") as reader:
        for event in reader:
            ...

Every few seconds, and before it gives the next event, the reader tells the group where it is, and reads from then on
what the group says.

| when                                             | calls                                                           |
|--------------------------------------------------|-----------------------------------------------------------------|
| the first event is asked for                     | `join`, `rebalance`                                             |
| `rebalance_seconds` have passed                  | `rebalance`                                                     |
| it has nothing to read, `idle_seconds` later     | the same; `state` too where it might be at the end              |
| it has given the last event of a sealed segment  | `finished`, `rebalance`, at once                                |
| `rebalance` by the caller                        | the same: what was given so far is not given again              |
| `leave`, `close`, the end                        | `leave`                                                         |

An event counts as read from when it was given. A segment may be given up in the middle of a batch: what was not given
of it, by this reader, is given by the next one.

What is given how often:

- Everything once, by all readers of a group together, whatever fails, as long as they live: after a call to the group
  whose outcome is not known nothing is given until a later one has gone through.
- A reader that dies, without `leave`, costs what it gave since its last `rebalance`: others give that again, once it
  was declared offline (`ReaderGroup.reader_offline`).

Events of one key come in their order, from whichever reader.
"""

from __future__ import annotations

from typing import Final

from accel.errors import IllegalState, InvalidArgument
from accel.history.rules.ids import IdMap
from accel.history.store import Stream
from accel.streams.events import Event, EventBatch
from accel.streams.frontier import Frontier
from accel.streams.groups.group_state import ENDED
from accel.streams.groups.reader_group import ReaderGroup
from accel.streams.groups.sharing import Assignment, Shares
from accel.streams.reader import ThreadReader
from accel.streams.reader_core import ReaderCore
from accel.streams.segment_source import SegmentSource
from accel.streams.steps import Finished, ReaderSettings
from accel.system import SYSTEM, Components

REBALANCE_SECONDS: Final = 2.0
REBALANCE_SECONDS_MAX: Final = 3600.0


class GroupReader(ThreadReader):
    """One reader of a group. Threads: one at a time.

    It joins when the first event is asked for; until then it makes no call.

    One that does not follow comes to its end, and leaves, when it has nothing left to read as the stream stands, no
    segment is free, none is owed to it, and no other reader told that it is behind: those may come to successors that
    are to be shared. So when the last reader has ended, all was read that was there when it looked; of one that died
    the others wait until it is declared offline, if it was behind. One that follows ends when the stream is sealed, and
    was read to its end by all.

    An error leaves it as it was: asked for the next event again, it tries again, and gives no event twice.

    Args:
        stream: which; that of the group.
        source: where its events come from; several readers may share one.
        group: says which segments it reads.
        name: of this reader. No two that are alive may have the same.
        follow: whether to wait for events that are not there yet.
        settings: bounds.
        rebalance_seconds: how often it tells where it is; above 0.
        system: the timer, and the clock that `lag` is measured by.

    Raises:
        InvalidArgument: no such time; while iterating: no name, or too many readers.
        IllegalState (while iterating): it was declared offline, so others give again what it gave since it told of it
            last. It has dropped everything, and joins again when it is asked for the next event.
        PositionTruncated (while iterating): the stream begins behind the position; `skip_to_head` goes on.
        ReaderStalled (while iterating): what must be there could not be found for `stall_seconds`.
        NotInHistory (while iterating): the group was deleted.
        AccelError (while iterating): something could not be read, or the group not be asked.
    """

    def __init__(
        self,
        stream: Stream,
        source: SegmentSource,
        group: ReaderGroup,
        name: str,
        *,
        follow: bool = True,
        settings: ReaderSettings | None = None,
        rebalance_seconds: float = REBALANCE_SECONDS,
        system: Components = SYSTEM,
    ) -> None:
        if not 0 < rebalance_seconds <= REBALANCE_SECONDS_MAX:
            raise InvalidArgument(f"expected up to {REBALANCE_SECONDS_MAX} s between calls, found {rebalance_seconds}")
        core = ReaderCore(Frontier(), settings or ReaderSettings(), follow=follow, is_member=True)
        super().__init__(stream, source, core, system)
        self.name = name
        self._group = group
        self._rebalance_seconds = rebalance_seconds
        self._rebalanced_at = 0.0
        self._untold: dict[int, Finished] = {}
        self._has_joined = self._is_leaving = False
        self._is_certain = self._has_nothing = self._has_ended = False

    def __repr__(self) -> str:
        return f"GroupReader({self._group!r}, {self.name!r})"

    def __next__(self) -> Event:
        self._lifetime.check_process()
        self._attend()
        return super().__next__()

    def position(self) -> IdMap:
        """Where it stands in the segments that it reads: behind the last event that was given."""
        self._collect()
        ends = {each.segment_id: each.offset for each in self._untold.values()}
        return IdMap.of({**super().position(), **ends})

    @property
    def is_finished(self) -> bool:
        """Whether it has come to its end: nothing comes any more."""
        return self._has_ended

    def rebalance(self) -> None:
        """Tell the group where this reader is, and read what it gives from now on; happens by itself now and then.

        What was given before is not given again, whatever happens to this reader. Nothing where it ended or was closed.

        Raises:
            IllegalState, NotInHistory, AccelError: as while iterating.
        """
        self._lifetime.check_process()
        if self._lifetime.is_closed or self._has_ended:
            return
        self._is_certain = False
        try:
            self._ask_group()
        except IllegalState:
            self._drop_all()
            raise

    def leave(self) -> None:
        """Let others read on from here; asked for the next event, it joins again. Nothing if it is not in the group.

        Raises:
            AccelError: it may be in the group still. It gives nothing until it has left, and joined again.
        """
        self._lifetime.check_process()  # another process would leave in the name of the one that reads
        if self._has_joined:
            self._is_certain, self._is_leaving = False, True
            self._group.leave(self.name, self.position())
            self._drop_all()

    def close(self) -> None:
        """Leave, and read no more; requests under way are not waited for. Raises as `leave`, which may be repeated."""
        try:
            self.leave()
        finally:
            self._close()

    def skip_to_head(self) -> IdMap:
        """Let the whole group go on at the stream's head wherever that lies behind it; gives this reader's position."""
        self._lifetime.check_process()
        self._group.skip_to_head()
        self.rebalance()
        return self.position()

    # Inside

    def _attend(self) -> None:
        self._collect()
        if self._lifetime.is_closed:
            self.leave()  # if that failed when it was closed: what it holds may be read by others
        elif self._pause_seconds() <= 0:
            self.rebalance()

    def _take(self) -> EventBatch | None:
        batch = super()._take()
        self._has_nothing = batch is None and not self._core.is_awaited
        return batch

    def _wait_seconds(self) -> float | None:
        found, pause = super()._wait_seconds(), max(0.0, self._pause_seconds())
        return pause if found is None else min(found, pause)

    def _pause_seconds(self) -> float:
        """How long the group need not be asked."""
        if self._untold or not self._is_certain:
            return 0.0
        pause = self._rebalance_seconds
        if self._has_nothing:
            pause = min(pause, self.settings.idle_seconds)
        return self._rebalanced_at + pause - self._system.timer()

    def _collect(self) -> None:
        """Take note of what was read to its end; all of it was given, for no answer is looked at before."""
        self._untold.update((each.segment_id, each) for each in self._core.finished())

    def _ask_group(self) -> None:
        if self._is_leaving:
            self.leave()  # whether the last attempt went through is not known
        if not self._has_joined:
            self._group.join(self.name)
            self._has_joined = True
        self._collect()
        for each in list(self._untold.values()):
            self._group.finished(self.name, each.segment_id, each.successors, offset=each.offset)
            del self._untold[each.segment_id]
        self._carry_out(self._group.rebalance(self.name, self.position(), self._told_lag()))
        self._rebalanced_at, self._is_certain = self._system.timer(), True
        if self._has_nothing and self._is_all_read():
            self.leave()
            self._has_ended = True

    def _told_lag(self) -> int:
        """What the group is told, in milliseconds: nobody is behind who has read all that there is, and others are."""
        return 0 if self._has_nothing else max(1, self._core.lag(self._now_ms()))

    def _carry_out(self, todo: Assignment) -> None:
        known = self._core.position()
        for segment_id in todo.stop:
            self._give_up(segment_id)
        for segment, offset in todo.start:
            if segment.id in known:
                self._give_up(segment.id)
            self._core.add(segment, offset)
            self._has_nothing = False

    def _give_up(self, segment_id: int) -> None:
        if self._batch is not None and self._batch.segment_id == segment_id:
            self._rest()
        self._core.remove(segment_id)

    def _is_all_read(self) -> bool:
        """Whether this reader, which has nothing to read, will not have anything to read any more."""
        if self._core.idle or (self._core.follows and len(self._core.position())):
            return False
        state = self._group.state()
        if (state.owners == ENDED).all():
            return True
        shares = Shares.of(state)
        is_owed = bool(shares.counts[state.index(self.name)] < shares.least)
        return not (self._core.follows or shares.free or is_owed or state.lags.any())

    def _drop_all(self) -> None:
        """It is in the group no more, and others read what it read."""
        self._collect()
        self._untold.clear()
        for segment_id in self._core.position():
            self._give_up(segment_id)
        self._has_joined = self._is_leaving = self._is_certain = self._has_nothing = False
