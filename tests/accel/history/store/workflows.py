"""The table of workflows: each with what lies ready when it begins, and what can be seen when it is done.

Crashes, races and all that comes between two calls walk through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import pytest

from accel.errors import AccelError
from accel.history.rules.configuration import StreamConfiguration
from accel.testing import Crash, CrashStore
from loaders.store import ObjectStore
from tests.accel.history.store.bench import Bench, cut, ids
from tests.accel.history.store.watching import interrupted
from tests.conformance.history_queries import everything
from tests.conformance.history_world import SCOPE, STREAM
from tests.examples import places

Act = Callable[[Bench, ObjectStore, int], object]
"""Is given the store to use, and the time."""


@cache
def _made(prepare: Callable[[Bench], object]) -> Bench:
    bench = Bench()
    prepare(bench)
    return bench


def prepared(prepare: Callable[[Bench], object]) -> Bench:
    """A bench after this was done, which is done once; each time another copy."""
    return _made(prepare).clone()


class Whole(NamedTuple):
    """A workflow that was done, and how many writes and calls of the store it took."""

    bench: Bench
    writes: int
    calls: int


@dataclass(frozen=True)
class Work:
    """A workflow.

    Attributes:
        prepare: what was done before.
        act: the workflow, to be repeated as it is.
        is_gone: whether it leaves no stream to ask.
    """

    prepare: Callable[[Bench], object]
    act: Act
    is_gone: bool = False

    def bench(self) -> Bench:
        """Everything ready, each time anew."""
        bench = prepared(self.prepare)
        bench.tick(100)
        return bench

    @cache  # noqa: B019 - works are constants
    def whole(self) -> Whole:
        """The workflow without anybody in its way; what it left is to be looked at only."""
        bench = self.bench()
        calls = interrupted(bench.store, None, lambda: None)
        writes = CrashStore(calls, None)
        self.act(bench, writes, bench.now_ms)
        return Whole(bench, writes.writes, calls.fitting)

    def crashed(self, part: int | None = None, every: int = 2) -> Iterator[tuple[int, Bench]]:
        """The stream after the workflow died before each of its writes, or some of them (see `places`)."""
        for number in places(self.whole().writes, part, every):
            bench = self.bench()
            with pytest.raises(Crash):
                self.act(bench, CrashStore(bench.store, number), bench.now_ms)
            yield number, bench

    def finish(self, bench: Bench, time_ms: int, *, recover: bool = False) -> None:
        """What another process does that finds this work undone, or half done; it may find it done."""
        with suppress(AccelError):
            if recover:
                bench.streams().recover()
        with suppress(AccelError):
            self.act(bench, bench.store, time_ms)
        if recover:  # a request that could still take the stream is known to be spent once another workflow has run
            with suppress(AccelError):
                bench.streams().recover()

    def shown(self, bench: Bench, *, with_times: bool, with_parts: bool = False) -> object:
        """All that can be seen afterwards."""
        # Parts of the index that were merged already do no harm, nor do requests that never took the stream; recovery
        # erases them.
        left = "historyIndex-part", "/request-"
        keys = [each for each in bench.live_keys() if with_parts or not any(name in each for name in left)]
        found: dict[str, object] = {"keys": keys, "segments": bench.host.ids((SCOPE, STREAM))}
        if not self.is_gone:
            found |= everything(bench, with_times=with_times)
        return found


def nothing(_: Bench) -> None:
    """Not even a scope."""


def scope(bench: Bench) -> None:
    """A scope without streams."""
    bench.streams().create_scope(SCOPE)


def two_segments(bench: Bench) -> None:
    """A stream as it was created, with data in it."""
    bench.create()
    bench.append_all(7)


def scaled(bench: Bench) -> None:
    """A stream at epoch 3."""
    two_segments(bench)
    for _ in range(3):
        bench.scale_once()
        bench.append_all(5)


def transactions_of_today(bench: Bench) -> None:
    """Two transactions to commit, one to abort, one open, all with the segments of today."""
    two_segments(bench)
    bench.transaction("first")
    bench.transaction("aborted", commit=False)
    bench.transaction("second")
    bench.transaction("open", commit=None)


def transactions_of_before(bench: Bench) -> None:
    """The same, and then the stream was scaled."""
    transactions_of_today(bench)
    bench.scale_once()
    bench.append_all(2)


def truncated(bench: Bench) -> None:
    """A stream that was truncated before."""
    scaled(bench)
    bench.stream().truncate(cut(s0_0=3, s1_0=2))


def full_pieces(bench: Bench) -> None:
    """The next epoch makes a part of the index full, and a leaf."""
    two_segments(bench)
    for _ in range(5):
        bench.scale_once()


def recorded(bench: Bench) -> None:
    """Cuts were recorded, the first of which may be truncated to."""
    scaled(bench)
    for _ in range(2):
        stream = bench.stream()
        tail = dict.fromkeys(stream.active_segments().ids.tolist(), 1)
        time_ms = bench.tick()
        stream.workflows.retention.add(time_ms, time_ms - 1_000_000, tail)
        bench.scale_once()
        bench.append_all(9)


def sealed(bench: Bench) -> None:
    """A sealed stream with epochs, transactions and cuts."""
    transactions_of_before(bench)
    bench.stream().seal()


def deleted(bench: Bench) -> None:
    """A stream was there and is deleted."""
    sealed(bench)
    bench.streams().delete_stream(SCOPE, STREAM)
    bench.transactions.clear()


def create(bench: Bench, store: ObjectStore, time_ms: int) -> object:
    """Create the stream."""
    return bench.streams(store).create_stream(SCOPE, STREAM, StreamConfiguration(min_segments=2), time_ms)


def scale(bench: Bench, store: ObjectStore, time_ms: int) -> object:
    """Split the second segment."""
    return bench.stream(around=store).scale(ids("1@0"), [(0.5, 0.75), (0.75, 1.0)], time_ms)


def scale_next(bench: Bench, store: ObjectStore, time_ms: int) -> object:
    """Split the second segment of a stream at epoch 5."""
    return bench.stream(around=store).scale(ids("5@4"), [(0.5, 0.75), (0.75, 1.0)], time_ms)


def commit(bench: Bench, store: ObjectStore, time_ms: int) -> object:
    """Commit what comes next."""
    return bench.stream(around=store).commit(time_ms)


def truncate(bench: Bench, store: ObjectStore, time_ms: int) -> object:
    """Let the stream begin in epoch 2."""
    del time_ms
    return bench.stream(around=store).truncate(cut(s2_1=1, s3_2=2))


def retain(bench: Bench, store: ObjectStore, time_ms: int) -> object:
    """Record a cut, and truncate to an older one."""
    return bench.stream(around=store).retention.run(time_ms)


def configure(bench: Bench, store: ObjectStore, time_ms: int) -> None:
    """Ask for another least number of segments."""
    del time_ms
    bench.stream(around=store).configure(StreamConfiguration(min_segments=2, tags=("new",)))


def seal(bench: Bench, store: ObjectStore, time_ms: int) -> None:
    """Seal the stream."""
    bench.stream(around=store).workflows.ending.seal(time_ms)


def delete(bench: Bench, store: ObjectStore, time_ms: int) -> None:
    """Delete the stream."""
    del time_ms
    bench.streams(store).delete_stream(SCOPE, STREAM)


def create_scope(bench: Bench, store: ObjectStore, time_ms: int) -> object:
    """Make the scope."""
    del time_ms
    return bench.streams(store).create_scope(SCOPE)


def delete_scope(bench: Bench, store: ObjectStore, time_ms: int) -> None:
    """Delete the scope."""
    del time_ms
    bench.streams(store).delete_scope(SCOPE)


WORKS = {
    "create scope": Work(nothing, create_scope, is_gone=True),
    "delete scope": Work(scope, delete_scope, is_gone=True),
    "create": Work(scope, create),
    "create again": Work(deleted, create),
    "scale": Work(two_segments, scale),
    "scale that fills pieces": Work(full_pieces, scale_next),
    "commit": Work(transactions_of_today, commit),
    "rolling commit": Work(transactions_of_before, commit),
    "truncate": Work(scaled, truncate),
    "truncate again": Work(truncated, truncate),
    "retention": Work(recorded, retain),
    "configure": Work(two_segments, configure),
    "seal": Work(two_segments, seal),
    "seal with transactions": Work(transactions_of_today, seal),
    "seal with transactions of before": Work(transactions_of_before, seal),
    "delete": Work(sealed, delete, is_gone=True),
}
