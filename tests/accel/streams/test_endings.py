"""What ends does the work that comes meanwhile, or refuses it by an error that is stated; nothing acknowledged is lost.

The table is `ROWS`: object, the call that ends it, the work that comes at each request of this call and once after it,
what the work may be refused with, and what becomes of work that comes after the end.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Final, NamedTuple
from uuid import UUID

import pytest

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

PAGE: Final = Path(__file__).parents[3] / "docs" / "explanation" / "order.md"
Errors = tuple[type[BaseException], ...]
DONE: Final = "done"
REFUSED: Final = "refused"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those who send events to other owners."""
    monkeypatch.setattr(segments, "PAUSE_SECONDS", 0.005)


class Plan(NamedTuple):
    """One row, on one bench: `end` ends the object, `work` comes meanwhile, `check` looks at what else is left."""

    end: Callable[[], object]
    work: Callable[[], object]
    check: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        ended: the object, and how it ends.
        work: what comes meanwhile.
        plan: makes the row's objects.
        refusals: the errors with which work may be refused, when it comes or by its future.
        after: what becomes of work that comes when the object has ended.
        ending: errors that the ending may raise, because the work came first.
        is_in_doubt: whether an event that was accepted and whose future failed may be in the stream.
        only_after: whether the work comes only after the end: a reader is for one caller at a time.
        is_gone: whether the stream is deleted in the end.
        moments: how many requests of the ending come before the work, each in a run of its own.
    """

    ended: str
    work: str
    plan: Callable[[Bench], Plan]
    refusals: Errors
    after: str = REFUSED
    ending: Errors = ()
    is_in_doubt: bool = False
    only_after: bool = False
    is_gone: bool = False
    moments: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        return f"{self.ended}: {self.work}"


ROWS: list[Row] = []
MOMENTS: Final = (0, 2, 4, 7, 11, 16)
"""Where the first work decides what becomes of the rest."""


def row(
    ended: str, work: str, *refusals: type[BaseException], **more: Any
) -> Callable[[Callable[[Bench], Plan]], None]:
    """Add a row to the table."""

    def added(plan: Callable[[Bench], Plan]) -> None:
        ROWS.append(Row(ended, work, plan, refusals, **more))

    return added


# Transactions


def writing(b: Bench, writer: Any, transaction: UUID) -> Callable[[], None]:
    """Work: one more event of a transaction."""

    def write(payload: bytes, key: bytes) -> Any:
        return writer.write(payload, key, transaction=transaction)

    return lambda: b.wrote(write)


def begun(b: Bench) -> tuple[Any, UUID]:
    """A transaction with one event."""
    writer = b.writer()
    transaction = writer.begin_transaction()
    b.wrote(lambda payload, key: writer.write(payload, key, transaction=transaction))
    return writer, transaction


def is_whole(b: Bench, transaction: UUID) -> None:
    """A transaction that is committed has all the events that were acknowledged with it; an aborted one has none."""
    status = b.own_stream().transactions.status(transaction)
    assert status in (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)
    assert bool(durable(b.outcomes())) == (status is TransactionStatus.COMMITTED)


@row("transaction, commit", "write", InvalidArgument)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)
    work = writing(b, writer, transaction)
    return Plan(lambda: writer.commit_transaction(transaction), work, lambda: is_whole(b, transaction))


@row("transaction, commit", "write_many", InvalidArgument)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)

    def work() -> None:
        b.wrote(lambda payload, key: writer.write_many([(payload, key)], transaction=transaction))

    return Plan(lambda: writer.commit_transaction(transaction), work, lambda: is_whole(b, transaction))


@row("transaction, commit that fails and is repeated", "write", InvalidArgument)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)
    work = writing(b, writer, transaction)

    def end() -> None:
        b.store.is_away = lambda call: "commitOrder" in call.key
        with pytest.raises(StoreError):
            writer.commit_transaction(transaction)
        b.store.is_away = lambda _: False
        work()
        writer.commit_transaction(transaction)

    return Plan(end, work, lambda: is_whole(b, transaction))


@row("transaction, commit", "commit by another thread", after=DONE)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)
    commit = partial(writer.commit_transaction, transaction)
    return Plan(commit, lambda: b.tried(commit), lambda: is_whole(b, transaction))


@row("transaction, commit", "abort", IllegalState, ending=(IllegalState,), after="", moments=MOMENTS)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)
    work = partial(b.tried, partial(writer.abort_transaction, transaction))
    return Plan(lambda: writer.commit_transaction(transaction), work, lambda: is_whole(b, transaction))


@row("transaction, abort", "write", InvalidArgument, IllegalState)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)
    work = writing(b, writer, transaction)
    return Plan(lambda: writer.abort_transaction(transaction), work, lambda: is_whole(b, transaction))


@row("transaction, abort", "commit", IllegalState, ending=(IllegalState,), after="", moments=MOMENTS)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)
    work = partial(b.tried, partial(writer.commit_transaction, transaction))
    return Plan(lambda: writer.abort_transaction(transaction), work, lambda: is_whole(b, transaction))


@row(
    "transaction, abort by another process",
    "write, commit",
    InvalidArgument,
    IllegalState,
    ending=(IllegalState,),
    moments=MOMENTS,
    after="",
)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)

    def work() -> None:
        b.wrote(lambda payload, key: writer.write(payload, key, transaction=transaction))
        b.tried(lambda: writer.commit_transaction(transaction))

    other = b.far.stream(*NAME).transactions
    return Plan(lambda: other.abort(transaction), work, lambda: is_whole(b, transaction))


# Writers


@row("writer, close", "write", Closed)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    return Plan(writer.close, lambda: b.wrote(writer.write))


@row("writer, close", "write_many", Closed)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    return Plan(writer.close, lambda: b.wrote(lambda payload, key: writer.write_many([(payload, key)])))


@row("writer, close", "begin, write", Closed, IllegalState, InvalidArgument)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)

    def work() -> None:
        def begin() -> None:
            transaction = writer.begin_transaction()
            b.wrote(lambda payload, key: writer.write(payload, key, transaction=transaction))

        b.tried(begin)

    return Plan(writer.close, work)


@row("writer, close", "write to a transaction", Closed, IllegalState, InvalidArgument)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)
    work = writing(b, writer, transaction)
    return Plan(writer.close, work, lambda: is_whole(b, transaction))


@row("writer, close", "commit", Closed, IllegalState, moments=MOMENTS)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)
    work = partial(b.tried, partial(writer.commit_transaction, transaction))
    return Plan(writer.close, work, lambda: is_whole(b, transaction))


@row("writer, close", "flush", Closed)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    return Plan(writer.close, lambda: b.tried(writer.flush))


# Sessions, and segments


@row("session, close", "write", Closed, ForwardInDoubt)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    return Plan(b.near.host().close, lambda: b.wrote(writer.write))


@row("session, close", "begin, write, commit", Closed, IllegalState, CommitRefused, ForwardInDoubt)
def _(b: Bench) -> Plan:
    writer = b.writer()

    def work() -> None:
        def whole() -> None:
            transaction = writer.begin_transaction()
            b.wrote(lambda payload, key: writer.write(payload, key, transaction=transaction))
            writer.commit_transaction(transaction)

        b.tried(whole)

    return Plan(b.near.host().close, work)


@row("session, stop", "write", Closed, ForwardInDoubt, is_in_doubt=True)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    return Plan(b.near.host().stop, lambda: b.wrote(writer.write))


@row("session, replaced by a newer one", "write", SessionFenced, CommitRefused, is_in_doubt=True, after="")
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)

    def end() -> None:
        newer = b.connect(FAR if b.is_forwarded else NEAR)
        newer.host().open_segments(NAME, b.stream.active_segments().ids.tolist())
        b.serve(newer)

    return Plan(end, lambda: b.wrote(writer.write))


def until_free(act: Callable[[], object]) -> None:
    """Call a workflow again while commits have the stream."""
    for _ in range(int(LONG_SECONDS / SHORT_SECONDS)):
        with suppress(OperationNotAllowed, DataConflict):
            act()
            return
        Event().wait(SHORT_SECONDS)
    raise AssertionError("expected a stream that becomes free, found commits without end")


def splitting(b: Bench) -> Callable[[], object]:
    """Split the first segment, by the process that has it."""
    stream = (b.far if b.is_forwarded else b.near).stream(*NAME)
    segment = stream.active_segments()[0]
    middle = (segment.key_start + segment.key_end) / 2
    halves = [(segment.key_start, middle), (middle, segment.key_end)]
    return lambda: until_free(lambda: stream.scale([segment.id], halves))


@row("segment, sealed by a scale", "write", after=DONE)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    return Plan(splitting(b), lambda: b.wrote(writer.write))


@row("segment, sealed by a scale", "begin, write, commit", after=DONE)
def _(b: Bench) -> Plan:
    writer = b.writer()

    def work() -> None:
        def whole() -> None:
            transaction = writer.begin_transaction()
            b.wrote(lambda payload, key: writer.write(payload, key, transaction=transaction))
            until_free(lambda: writer.commit_transaction(transaction))

        b.tried(whole)

    return Plan(splitting(b), work)


@row("segment, taken over by another node", "write", StreamsReleased, OwnerUnreachable, after="")
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    from_node, taker = (FAR, b.connect(FAR + 1)) if b.is_forwarded else (NEAR, b.far)
    ids = b.stream.active_segments().ids.tolist()
    taker.host()

    def end() -> None:
        taker.host().take_over(NAME, dict.fromkeys(ids, from_node))
        taker.registration().end()  # so that the row's process may take them back at once

    return Plan(end, lambda: b.wrote(writer.write))


# Streams, and scopes


def sealing(b: Bench) -> Callable[[], object]:
    """Seal the stream; again while a commit has it."""
    stream = (b.far if b.is_forwarded else b.near).stream(*NAME)
    return lambda: until_free(stream.seal)


@row("stream, seal", "write", IllegalState)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)

    def check() -> None:
        b.outcomes()  # now the writer knows
        with pytest.raises(IllegalState, match="sealed"):
            writer.write(b"after", b"key")
        with pytest.raises(IllegalState, match="sealed"):
            writer.write_many([(b"after", b"key")])
        with pytest.raises(IllegalState, match="seal"):
            writer.begin_transaction()
        b.tried(writer.flush)  # reports the events that will never be durable, unless a flush has done so
        writer.close()

    return Plan(sealing(b), lambda: b.wrote(writer.write), check)


@row("stream, seal", "write_many", IllegalState)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    return Plan(sealing(b), lambda: b.wrote(lambda payload, key: writer.write_many([(payload, key)])))


@row("stream, seal", "write to a transaction, commit", IllegalState, InvalidArgument, moments=MOMENTS)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)

    def work() -> None:
        b.wrote(lambda payload, key: writer.write(payload, key, transaction=transaction))
        b.tried(lambda: writer.commit_transaction(transaction))

    return Plan(sealing(b), work, lambda: is_whole(b, transaction))


@row("stream, seal", "begin, write, commit", IllegalState, InvalidArgument)
def _(b: Bench) -> Plan:
    writer = b.writer()

    def work() -> None:
        def whole() -> None:
            transaction = writer.begin_transaction()
            b.wrote(lambda payload, key: writer.write(payload, key, transaction=transaction))
            writer.commit_transaction(transaction)

        b.tried(whole)

    return Plan(sealing(b), work)


def deleting(b: Bench) -> Callable[[], object]:
    """Delete the stream, which is sealed already."""
    sealing(b)()
    return lambda: (b.far if b.is_forwarded else b.near).stream_store.delete_stream(*NAME)


@row("stream, delete", "write", IllegalState, NotInHistory, is_gone=True)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    writer.flush()
    return Plan(deleting(b), lambda: b.wrote(writer.write))


@row("stream, delete", "begin, write, commit", IllegalState, InvalidArgument, NotInHistory, TableMissing, is_gone=True)
def _(b: Bench) -> Plan:
    writer, transaction = begun(b)

    def work() -> None:
        b.wrote(lambda payload, key: writer.write(payload, key, transaction=transaction))
        b.tried(lambda: writer.commit_transaction(transaction))
        b.tried(writer.begin_transaction)

    return Plan(deleting(b), work, writer.close)


@row("stream, delete", "read", NotInHistory, after="", is_gone=True)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    writer.flush()
    reader = b.made("reader", *NAME, follow=True, settings=QUICK)
    assert reader.next_event(LONG_SECONDS) is not None

    def check() -> None:
        b.tried(reader.next_event)  # at its end, or refused: it does not wait for ever
        reader.close()

    return Plan(deleting(b), lambda: b.tried(lambda: reader.next_event(0.001)), check)


@row("stream, delete", "read in a group", NotInHistory, TableMissing, only_after=True, is_gone=True)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    writer.flush()
    reader = b.made("group_reader", *NAME, "billing", "one", settings=QUICK)
    assert reader.next_event(LONG_SECONDS) is not None

    def work() -> None:
        b.tried(reader.commit)
        b.tried(reader.rebalance)

    def check() -> None:
        reader.close()
        reader.close()

    return Plan(deleting(b), work, check)


@row("stream, delete", "create a stream of this name", after=DONE, is_gone=True)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    writer.flush()
    end = deleting(b)

    def work() -> None:
        b.tried(lambda: b.near.create_stream(*NAME, segments=1))

    def check() -> None:
        with pytest.raises(AccelError):
            writer.write(b"of the older stream", b"key").result(LONG_SECONDS)
        with b.near.writer(*NAME) as of_the_newer:
            assert of_the_newer.write(b"new", b"key").result(LONG_SECONDS) is not None
        assert b.payloads() == [b"new"]

    return Plan(end, work, check)


@row("scope, delete", "create a stream", NotInHistory, ending=(IllegalState,), after="")
def _(b: Bench) -> Plan:
    b.near.create_scope("empty")
    made: list[str] = []

    def create() -> None:
        made.append(b.near.create_stream("empty", "first").name)

    def check() -> None:
        assert ("empty" in b.near.stream_store.scopes()) == bool(made)
        for name in made:
            assert b.near.stream(*name.split("/")).active_segments()

    return Plan(lambda: b.near.stream_store.delete_scope("empty"), lambda: b.tried(create), check)


# Readers


@row("reader, close", "read", Closed, only_after=True)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    writer.flush()
    reader = b.made("reader", *NAME, follow=True, settings=QUICK)
    assert reader.next_event(LONG_SECONDS) is not None
    return Plan(reader.close, lambda: b.tried(reader.next_event))


@row("group reader, close", "read, commit", Closed, only_after=True)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    writer.flush()
    reader = b.made("group_reader", *NAME, "billing", "one", settings=QUICK)
    assert reader.next_event(LONG_SECONDS) is not None

    def work() -> None:
        b.tried(reader.next_event)
        b.tried(reader.commit)
        b.tried(reader.next_batch)

    return Plan(reader.close, work)


@row("group of readers, delete", "read, commit", NotInHistory, only_after=True)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    writer.flush()
    reader = b.made("group_reader", *NAME, "billing", "one", settings=QUICK)
    assert reader.next_event(LONG_SECONDS) is not None

    def work() -> None:
        b.tried(reader.commit)
        b.tried(reader.next_event)

    return Plan(b.near.group(*NAME, "billing").delete, work, reader.close)


# Connections


@row("connection, close", "write", Closed)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    return Plan(closing(b), lambda: b.wrote(writer.write))


@row("connection, close", "begin, write", Closed, IllegalState, InvalidArgument)
def _(b: Bench) -> Plan:
    writer = b.writer()

    def work() -> None:
        def begin() -> None:
            transaction = writer.begin_transaction()
            b.wrote(lambda payload, key: writer.write(payload, key, transaction=transaction))

        b.tried(begin)

    return Plan(closing(b), work)


@row("connection, close", "open a writer, a reader, a stream", Closed)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)

    def work() -> None:
        b.tried(lambda: b.wrote(b.writer().write))
        b.tried(lambda: b.made("reader", *NAME))
        b.tried(lambda: b.made("group_reader", *NAME, "billing", "one"))
        b.tried(lambda: b.near.stream(*NAME))

    return Plan(closing(b), work)


@row("connection, stop", "write", Closed, ForwardInDoubt, is_in_doubt=True)
def _(b: Bench) -> Plan:
    writer = b.writer()
    b.wrote(writer.write)
    return Plan(b.near.stop, lambda: b.wrote(writer.write))


def closing(b: Bench) -> Callable[[], object]:
    """Close the connection as the end of its block does."""

    def close() -> None:
        if b.tasks is not None:
            b.tasks.close_given()
        b.near.close()

    return close


# The table


def test_the_page_about_writers_has_the_same_objects() -> None:
    section = PAGE.read_text().split("### Work that comes while something ends")[1].split("\n#")[0]
    written = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    assert sorted(written[1:]) == sorted({case.ended.split(",")[0] for case in ROWS})


@pytest.mark.parametrize("is_forwarded", [False, True], ids=["plain", "forwarded"])
@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize("case", ROWS, ids=str)
def test_work_that_comes_while_an_object_ends_is_done_or_refused(
    case: Row, *, is_async: bool, is_forwarded: bool
) -> None:
    for moment in case.moments:
        with bench(is_async=is_async, is_forwarded=is_forwarded) as b:
            plan = case.plan(b)
            first = len(b.promises)
            b.run(plan.end, plan.work, first=None if case.only_after else moment)
            plan.check()
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
