"""What ends does the work that comes meanwhile, or refuses it by an error that is stated; nothing acknowledged is lost.

The table is `ROWS`: object, the call that ends it, the work that comes at each request of this call and once after it,
what the work may be refused with, and what becomes of work that comes after the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from threading import Event
from typing import Any, Final
from uuid import UUID

import pytest
from _pytest.mark import ParameterSet

from accel import Connection
from accel.errors import (
    AccelError,
    Closed,
    CommitRefused,
    ForwardInDoubt,
    IllegalState,
    InvalidArgument,
    NotInHistory,
    OperationNotAllowed,
    OwnerUnreachable,
    SessionFenced,
    StoreError,
    StreamsReleased,
)
from accel.history.rules.transactions import TransactionStatus
from accel.streams.shared import segments
from loaders.errors import DataConflict, TableMissing
from tests.accel.streams.endings import (
    FAR,
    LONG_SECONDS,
    NAME,
    NEAR,
    QUICK,
    SHORT_SECONDS,
    Bench,
    bench,
    durable,
    kinds,
)
from tests.examples import examples, places

PAGE: Final = Path(__file__).parents[3] / "docs" / "explanation" / "order.md"
Errors = tuple[type[BaseException], ...]
DONE: Final = "done"
REFUSED: Final = "refused"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those who send events to other owners."""
    monkeypatch.setattr(segments, "PAUSE_SECONDS", 0.005)


class Actor:
    """A writer of the near process with one event, of a transaction if it begins one; and perhaps a reader of it."""

    def __init__(self, b: Bench, row: Row) -> None:
        self.b, self.writer = b, b.writer()
        self.transaction: Any = self.writer.begin_transaction() if row.begins else None
        self.created: list[str] = []
        if not row.is_new:
            self.write()
        if row.reads or row.is_gone:
            self.writer.flush()
        if row.reads:
            member = ("billing", "one") if row.reads == "group_reader" else ()
            self.reader = b.made(row.reads, *NAME, *member, follow=True, settings=QUICK)
            assert self.reader.next_event(LONG_SECONDS) is not None

    def try_all(self, *acts: Callable[[], object]) -> None:
        for act in acts:
            self.b.tried(act)

    def write(self) -> None:
        self.b.wrote(partial(self.writer.write, transaction=self.transaction))

    def write_many(self) -> None:
        self.b.wrote(lambda *event: self.writer.write_many([event], transaction=self.transaction))

    def commit(self) -> None:
        self.writer.commit_transaction(self.transaction)

    def abort(self) -> None:
        self.writer.abort_transaction(self.transaction)

    def write_and_commit(self) -> None:
        self.write()
        self.b.tried(self.commit)

    def begin_and_write(self, then: Callable[[UUID], object] = lambda _: None) -> None:
        def begin() -> None:
            transaction = self.writer.begin_transaction()
            self.b.wrote(partial(self.writer.write, transaction=transaction))
            then(transaction)

        self.b.tried(begin)

    def begin_and_commit(self) -> None:
        self.begin_and_write(self.writer.commit_transaction)

    def begin_and_commit_when_free(self) -> None:
        self.begin_and_write(lambda transaction: until_free(lambda: self.writer.commit_transaction(transaction)))

    def write_commit_and_begin(self) -> None:
        self.write_and_commit()
        self.b.tried(self.writer.begin_transaction)

    def open_others(self) -> None:
        b = self.b
        opened = [partial(b.made, "reader", *NAME), partial(b.made, "group_reader", *NAME, "billing", "one")]
        self.try_all(lambda: b.wrote(b.writer().write), *opened, lambda: b.near.stream(*NAME))

    def create(self) -> None:
        self.created.append(self.b.near.create_stream("empty", "first").name)


WORKS: Final[dict[str, Callable[[Actor], object]]] = {
    "write": Actor.write,
    "write_many": Actor.write_many,
    "commit": lambda a: a.b.tried(a.commit),
    "commit by another thread": lambda a: a.b.tried(a.commit),
    "abort": lambda a: a.b.tried(a.abort),
    "write, commit": Actor.write_and_commit,
    "write to a transaction": Actor.write,
    "write to a transaction, commit": Actor.write_and_commit,
    "begin, write": Actor.begin_and_write,
    "begin, write, commit": Actor.begin_and_commit,
    "flush": lambda a: a.b.tried(a.writer.flush),
    "read": lambda a: a.b.tried(lambda: a.reader.next_event(SHORT_SECONDS)),
    "read in a group": lambda a: a.try_all(a.reader.commit, a.reader.rebalance),
    "read, commit": lambda a: a.try_all(a.reader.commit, a.reader.next_event),
    "create a stream": lambda a: a.b.tried(a.create),
    "create a stream of this name": lambda a: a.b.tried(lambda: a.b.near.create_stream(*NAME, segments=1)),
    "open a writer, a reader, a stream": Actor.open_others,
}


# How objects end


def failing_first(a: Actor) -> Callable[[], object]:
    def end() -> None:
        a.b.is_away = lambda call: "commitOrder" in call.key
        with pytest.raises(StoreError):
            a.commit()
        a.b.is_away = lambda _: False
        a.write()
        a.commit()

    return end


def replacing(a: Actor) -> Callable[[], object]:
    def end() -> None:
        newer = a.b.connect(FAR if a.b.is_forwarded else NEAR)
        newer.host().open_segments(NAME, a.b.stream.active_segments().ids.tolist())
        a.b.serve(newer)

    return end


def until_free(act: Callable[[], object]) -> None:
    """Call a workflow again while commits have the stream."""
    for _ in range(int(LONG_SECONDS / SHORT_SECONDS)):
        with suppress(OperationNotAllowed, DataConflict):
            act()
            return
        Event().wait(SHORT_SECONDS)
    raise AssertionError("expected a stream that becomes free, found commits without end")


def owner(b: Bench) -> Connection:
    """The process that has the segments."""
    return b.far if b.is_forwarded else b.near


def splitting(a: Actor) -> Callable[[], object]:
    stream = owner(a.b).stream(*NAME)
    segment = stream.active_segments()[0]
    middle = (segment.key_start + segment.key_end) / 2
    halves = [(segment.key_start, middle), (middle, segment.key_end)]
    return lambda: until_free(lambda: stream.scale([segment.id], halves))


def taking_over(a: Actor) -> Callable[[], object]:
    from_node, taker = (FAR, a.b.connect(FAR + 1)) if a.b.is_forwarded else (NEAR, a.b.far)
    ids = a.b.stream.active_segments().ids.tolist()
    taker.host()

    def end() -> None:
        taker.host().take_over(NAME, dict.fromkeys(ids, from_node))
        taker.registration().end()  # so that the row's process may take them back at once

    return end


def sealing(a: Actor) -> Callable[[], object]:
    return partial(until_free, owner(a.b).stream(*NAME).seal)


def deleting(a: Actor) -> Callable[[], object]:
    sealing(a)()
    return partial(owner(a.b).stream_store.delete_stream, *NAME)


def deleting_scope(a: Actor) -> Callable[[], object]:
    a.b.near.create_scope("empty")
    return partial(a.b.near.stream_store.delete_scope, "empty")


def closing(a: Actor) -> Callable[[], object]:
    """Close the connection as the end of its block does."""

    def close() -> None:
        if a.b.tasks is not None:
            a.b.tasks.close_given()
        a.b.near.close()

    return close


ENDS: Final[dict[str, Callable[[Actor], Callable[[], object]]]] = {
    "transaction, commit": lambda a: a.commit,
    "transaction, commit that fails and is repeated": failing_first,
    "transaction, abort": lambda a: a.abort,
    "transaction, abort by another process": lambda a: partial(a.b.far.stream(*NAME).transactions.abort, a.transaction),
    "writer, close": lambda a: a.writer.close,
    "session, close": lambda a: a.b.near.host().close,
    "session, stop": lambda a: a.b.near.host().stop,
    "session, replaced by a newer one": replacing,
    "segment, sealed by a scale": splitting,
    "segment, taken over by another node": taking_over,
    "stream, seal": sealing,
    "stream, delete": deleting,
    "scope, delete": deleting_scope,
    "reader, close": lambda a: a.reader.close,
    "group reader, close": lambda a: a.reader.close,
    "group of readers, delete": lambda a: a.b.near.group(*NAME, "billing").delete,
    "connection, close": closing,
    "connection, stop": lambda a: a.b.near.stop,
}


# What else is left


def is_whole(a: Actor) -> None:
    """A transaction that is committed has all the events that were acknowledged with it; an aborted one has none."""
    status = a.b.near.stream(*NAME).transactions.status(a.transaction)
    assert status in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)
    assert bool(durable(a.b.outcomes())) == (status is TransactionStatus.COMMITTED)


def knows_that_it_is_sealed(a: Actor) -> None:
    a.b.outcomes()  # now the writer knows
    with pytest.raises(IllegalState, match="sealed"):
        a.writer.write(b"after", b"key")
    with pytest.raises(IllegalState, match="sealed"):
        a.writer.write_many([(b"after", b"key")])
    with pytest.raises(IllegalState, match="seal"):
        a.writer.begin_transaction()
    a.b.tried(a.writer.flush)  # reports the events that will never be durable, unless a flush has done so
    a.writer.close()


def reads_no_more(a: Actor) -> None:
    a.b.tried(a.reader.next_event)  # at its end, or refused: it does not wait for ever
    a.reader.close()


def closes_twice(a: Actor) -> None:
    a.reader.close()
    a.reader.close()


def newer_is_written(a: Actor) -> None:
    with pytest.raises(AccelError):
        a.writer.write(b"of the older stream", b"key").result(LONG_SECONDS)
    with a.b.near.writer(*NAME) as of_the_newer:
        assert of_the_newer.write(b"new", b"key").result(LONG_SECONDS) is not None
    assert a.b.payloads() == [b"new"]


def scope_is_there_if_it_has_a_stream(a: Actor) -> None:
    assert ("empty" in a.b.near.stream_store.scopes()) == bool(a.created)
    for name in a.created:
        assert a.b.near.stream(*name.split("/")).active_segments()


# The table


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        ended: the object, and how it ends.
        work: what comes meanwhile.
        refusals: the errors with which work may be refused, when it comes or by its future.
        after: what becomes of work that comes when the object has ended.
        ending: errors that the ending may raise, because the work came first.
        begins: whether the writer has begun a transaction.
        is_new: whether it has written nothing.
        reads: the kind of reader that there is, which has read the event.
        work_here: the work, where it is not as in `WORKS`.
        check: looks at what else is left.
        is_in_doubt: whether an event that was accepted and whose future failed may be in the stream.
        only_after: whether the work comes only after the end: a reader is for one caller at a time.
        is_gone: whether the stream is deleted in the end.
        moments: how many requests of the ending come before the work, each in a run of its own.
    """

    ended: str
    work: str
    refusals: Errors = ()
    after: str = REFUSED
    ending: Errors = ()
    begins: bool = False
    is_new: bool = False
    reads: str = ""
    work_here: Callable[[Actor], object] | None = None
    check: Callable[[Actor], object] | None = None
    is_in_doubt: bool = False
    only_after: bool = False
    is_gone: bool = False
    moments: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        return f"{self.ended}: {self.work}"


MOMENTS: Final = (0, 2, 4, 7, 11, 16)
"""Where the first work decides what becomes of the rest."""

ILLEGAL: Final = (IllegalState,)
ENDED: Final = (IllegalState, InvalidArgument)
CLOSED: Final = (Closed, *ENDED)
DOUBTFUL: Final = (Closed, ForwardInDoubt)
DELETED: Final = (*ENDED, NotInHistory, TableMissing)

ROWS: Final = [
    Row("transaction, commit", "write", (InvalidArgument,), begins=True),
    Row("transaction, commit", "write_many", (InvalidArgument,), begins=True),
    Row("transaction, commit that fails and is repeated", "write", (InvalidArgument,), begins=True),
    Row("transaction, commit", "commit by another thread", after=DONE, begins=True),
    Row("transaction, commit", "abort", ILLEGAL, "", ILLEGAL, begins=True, moments=MOMENTS),
    Row("transaction, abort", "write", ENDED, begins=True),
    Row("transaction, abort", "commit", ILLEGAL, "", ILLEGAL, begins=True, moments=MOMENTS),
    Row("transaction, abort by another process", "write, commit", ENDED, "", ILLEGAL, begins=True, moments=MOMENTS),
    Row("writer, close", "write", (Closed,)),
    Row("writer, close", "write_many", (Closed,)),
    Row("writer, close", "begin, write", CLOSED),
    Row("writer, close", "write to a transaction", CLOSED, begins=True),
    Row("writer, close", "commit", (Closed, IllegalState), begins=True, moments=MOMENTS),
    Row("writer, close", "flush", (Closed,)),
    Row("session, close", "write", DOUBTFUL),
    Row("session, close", "begin, write, commit", (*DOUBTFUL, IllegalState, CommitRefused), is_new=True),
    Row("session, stop", "write", DOUBTFUL, is_in_doubt=True),
    Row("session, replaced by a newer one", "write", (SessionFenced, CommitRefused), "", is_in_doubt=True),
    Row("segment, sealed by a scale", "write", after=DONE),
    Row(
        "segment, sealed by a scale",
        "begin, write, commit",
        after=DONE,
        is_new=True,
        work_here=Actor.begin_and_commit_when_free,
    ),
    Row("segment, taken over by another node", "write", (StreamsReleased, OwnerUnreachable), ""),
    Row("stream, seal", "write", ILLEGAL, check=knows_that_it_is_sealed),
    Row("stream, seal", "write_many", ILLEGAL),
    Row("stream, seal", "write to a transaction, commit", ENDED, begins=True, moments=MOMENTS),
    Row("stream, seal", "begin, write, commit", ENDED, is_new=True),
    Row("stream, delete", "write", (IllegalState, NotInHistory), is_gone=True),
    Row(
        "stream, delete",
        "begin, write, commit",
        DELETED,
        begins=True,
        work_here=Actor.write_commit_and_begin,
        check=lambda a: a.writer.close(),
        is_gone=True,
    ),
    Row("stream, delete", "read", (NotInHistory,), "", reads="reader", check=reads_no_more, is_gone=True),
    Row(
        "stream, delete",
        "read in a group",
        (NotInHistory, TableMissing),
        check=closes_twice,
        is_gone=True,
        reads="group_reader",
        only_after=True,
    ),
    Row("stream, delete", "create a stream of this name", after=DONE, check=newer_is_written, is_gone=True),
    Row(
        "scope, delete",
        "create a stream",
        (NotInHistory,),
        "",
        ILLEGAL,
        is_new=True,
        check=scope_is_there_if_it_has_a_stream,
    ),
    Row("reader, close", "read", (Closed,), reads="reader", only_after=True),
    Row(
        "group reader, close",
        "read, commit",
        (Closed,),
        work_here=lambda a: a.try_all(a.reader.next_event, a.reader.commit, a.reader.next_batch),
        reads="group_reader",
        only_after=True,
    ),
    Row(
        "group of readers, delete",
        "read, commit",
        (NotInHistory,),
        check=lambda a: a.reader.close(),
        reads="group_reader",
        only_after=True,
    ),
    Row("connection, close", "write", (Closed,)),
    Row("connection, close", "begin, write", CLOSED, is_new=True),
    Row("connection, close", "open a writer, a reader, a stream", (Closed,)),
    Row("connection, stop", "write", DOUBTFUL, is_in_doubt=True),
]


def test_the_page_about_writers_has_the_same_objects() -> None:
    section = PAGE.read_text().split("### Work that comes while something ends")[1].split("\n#")[0]
    written = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    assert sorted(written[1:]) == sorted({case.ended.split(",")[0] for case in ROWS})


def cases() -> Iterator[ParameterSet]:
    """Each row by one of the four ways that there are, in turn; by all with ACCEL_TEST_EXAMPLES_FACTOR of 1 or more."""
    for number, (row, is_async, is_forwarded) in enumerate(product(ROWS, (False, True), (False, True))):
        if examples(1000) >= 1000 or (number // 4 + number % 4) % 4 == 0:
            words = (str(row), "asyncio" if is_async else "threads", "forwarded" if is_forwarded else "plain")
            yield pytest.param(row, is_async, is_forwarded, id="-".join(words))


@pytest.mark.parametrize(("case", "is_async", "is_forwarded"), [*cases()])
def test_work_that_comes_while_an_object_ends_is_done_or_refused(
    case: Row, *, is_async: bool, is_forwarded: bool
) -> None:
    for place in places(len(case.moments), len(str(case))):
        moment = case.moments[place]
        with bench(is_async=is_async, is_forwarded=is_forwarded) as b:
            actor = Actor(b, case)
            end, work = ENDS[case.ended](actor), case.work_here or WORKS[case.work]
            first = len(b.promises)
            b.run(end, lambda: work(actor), first=None if case.only_after else moment)  # noqa: B023 - called at once
            looks = case.check or (is_whole if case.begins else None)
            if looks is not None:
                looks(actor)
            check(case, b, first)


def check(case: Row, b: Bench, first: int) -> None:
    """Nothing hangs, nothing is acknowledged and lost, and each refusal is one that the row states."""
    outcomes = b.outcomes()
    refused = kinds([*b.errors, *outcomes.values()])
    assert {kind for kind in refused if not issubclass(kind, case.refusals)} == set()
    assert [error for error in b.ending_errors if not isinstance(error, case.ending)] == []
    if case.after == REFUSED:
        last = b.promises[-1] if len(b.promises) > first else None
        assert b.errors or (last is not None and outcomes[last.payload] is not None)
    if case.after == DONE:
        assert refused == set()
    if case.is_gone:
        return
    b.finish()
    found = b.payloads()
    assert len(set(found)) == len(found)
    assert durable(outcomes) - set(found) == set()
    doubtful = (CommitRefused, ForwardInDoubt)
    certain = {
        each.payload
        for each in b.promises
        if each.error is not None or not (case.is_in_doubt or isinstance(outcomes[each.payload], doubtful))
    }
    assert (certain - durable(outcomes)) & set(found) == set()
    assert b.transaction_keys() == []
