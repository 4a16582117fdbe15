"""Reads snapshots in the loading threads: each root and each stretch of bytes once, however many ask for it.

Nothing here fails a lookup. Whatever is wrong with a hint, or with the store when it was asked for one, becomes the
`problem` of the outcome and a count; the lookup goes on without.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from accel.errors import AccelError
from accel.lookup.hint_store import HintStore
from accel.lookup.wanted import EntriesWanted, HintReply, Reply, SnapshotKnown
from loaders.hints import (
    ByteSpan,
    HintProblem,
    HintTrouble,
    StreamEntries,
    decode_entries,
    read_span,
)
from loaders.store import ObjectStore

K = TypeVar("K")
V = TypeVar("V")

logger = logging.getLogger(__name__)

OnEntries = Callable[[int, SnapshotKnown, StreamEntries], None]
"""Called with (node, snapshot, entries) in the loading thread, before anybody gets them."""


@dataclass(frozen=True, slots=True, eq=False)
class HintOutcome:
    """What came of asking for a hint.

    Args:
        known: what is known of the snapshot; None if the store could not say.
        entries: the stream's entries, if they were asked for and can be used.
        problem: why there is nothing to use.
        requests: how many requests it took.
        bytes_read: how many bytes these fetched.
    """

    known: SnapshotKnown | None
    entries: StreamEntries | None
    problem: HintProblem | AccelError | None
    requests: int
    bytes_read: int

    def reply(self, objects: dict[int, Reply]) -> HintReply:
        """The same for a search, with what opened objects hold."""
        return HintReply(objects, self.known, self.entries, self.problem)


@dataclass(frozen=True, slots=True)
class HintLoad:
    """A hint that is being read; ``started`` says whether this very call caused requests."""

    result: Future[HintOutcome]
    started: bool


class HintLoader:
    """Reads roots and entries of snapshots.

    Args:
        store: where they lie.
        hints: keeps what comes.
        executor: runs the reads.
        on_entries: is told of entries.

    Threads: any. No lock is held over I/O.
    """

    def __init__(self, store: ObjectStore, hints: HintStore, executor: Executor, on_entries: OnEntries) -> None:
        self._store = store
        self._hints = hints
        self._executor = executor
        self._on_entries = on_entries
        self._lock = threading.Lock()
        self._roots: dict[int, Future[HintOutcome]] = {}
        self._bodies: dict[ByteSpan, Future[bytes | HintProblem | AccelError]] = {}

    def read_root(self, node_id: int) -> HintLoad:
        """Start to read a node's root, or join who is reading it."""
        if (known := self._hints.root(node_id)) is not None:
            return HintLoad(_done(HintOutcome(known, None, known.problem, 0, 0)), started=False)
        flight, new = self._join(self._roots, node_id)
        if new:
            self._submit(self._roots, node_id, partial(self._fetch_root, node_id))
        return HintLoad(flight, new)

    def read_entries(self, wanted: EntriesWanted) -> HintLoad:
        """Start to read a stream's entries; who wants another stream of the same bytes joins."""
        held = self._hints.held(wanted.node.node_id, wanted.stream_id, wanted.known)
        if held is not None and held.complete:  # somebody else's request came just now
            return HintLoad(_done(HintOutcome(wanted.known, held, None, 0, 0)), started=False)
        result: Future[HintOutcome] = Future()
        result.set_running_or_notify_cancel()  # from here on nobody who waits can cancel it
        flight, new = self._join(self._bodies, wanted.span)
        flight.add_done_callback(lambda body: _land(result, partial(self._outcome, wanted, body, started=new)))
        if new:
            self._submit(self._bodies, wanted.span, partial(self._fetch_body, wanted.span))
        return HintLoad(result, new)

    def _join(self, flights: dict[K, Future[V]], key: K) -> tuple[Future[V], bool]:
        with self._lock:
            if (flight := flights.get(key)) is not None:
                return flight, False
            flight = flights[key] = Future()
            flight.set_running_or_notify_cancel()
            return flight, True

    def _submit(self, flights: dict[K, Future[V]], key: K, work: Callable[[], V]) -> None:
        try:
            self._executor.submit(self._fly, flights, key, work)
        except (AccelError, RuntimeError) as error:  # the executor is shut down
            with self._lock:
                flight = flights.pop(key)
            flight.set_exception(error)

    def _fly(self, flights: dict[K, Future[V]], key: K, work: Callable[[], V]) -> None:
        _land(flights[key], work)
        # Only now, when all who waited have taken and kept what came: whoever asks next finds it in memory.
        with self._lock:
            del flights[key]

    def _fetch_root(self, node_id: int) -> HintOutcome:
        counters = self._hints.counters
        counters.add(roots_asked=1, requests=1)
        try:
            known = self._hints.roots.read(self._store, node_id)
        except AccelError as error:
            counters.met(error)
            return HintOutcome(None, None, error, 1, 0)
        self._hints.saw(known)
        counters.add(bytes_read=known.read_size_bytes)
        if known.problem is not None:
            counters.met(known.problem)
        return HintOutcome(known, None, known.problem, 1, known.read_size_bytes)

    def _fetch_body(self, span: ByteSpan) -> bytes | HintProblem | AccelError:
        self._hints.counters.add(requests=1)
        try:
            body = read_span(self._store, span)
        except (HintProblem, AccelError) as problem:
            return problem
        self._hints.counters.add(bytes_read=len(body))
        return body

    def _outcome(
        self, wanted: EntriesWanted, done: Future[bytes | HintProblem | AccelError], *, started: bool
    ) -> HintOutcome:
        body = done.result()
        size_bytes = len(body) if isinstance(body, bytes) else 0
        entries = _decoded(wanted, body) if isinstance(body, bytes) else body
        self._hints.counters.add(entries_asked=1)
        if not isinstance(entries, StreamEntries):
            self._note(wanted, entries)
            return HintOutcome(wanted.known, None, entries, int(started), size_bytes * started)
        self._hints.counters.add(entries=len(entries))
        self._hints.keep(wanted.node.node_id, wanted.known, entries)
        self._on_entries(wanted.node.node_id, wanted.known, entries)
        return HintOutcome(wanted.known, entries, None, int(started), size_bytes * started)

    def _note(self, wanted: EntriesWanted, problem: HintProblem | AccelError) -> None:
        self._hints.counters.met(problem)
        if not isinstance(problem, HintProblem):
            return
        if problem.kind in {HintTrouble.STALE, HintTrouble.MIXED}:
            self._hints.give_up(wanted.node.node_id, problem)
        else:
            self._hints.note_bad(wanted.known, wanted.span)


def _done(outcome: HintOutcome) -> Future[HintOutcome]:
    future: Future[HintOutcome] = Future()
    future.set_result(outcome)
    return future


def _decoded(wanted: EntriesWanted, body: bytes) -> StreamEntries | HintProblem:
    root = wanted.known.root
    if root is None:
        raise ValueError("expected entries of a snapshot with a root, found none")
    try:
        return decode_entries(root, wanted.span, body, wanted.stream_id)
    except HintProblem as problem:
        return problem
    except Exception as error:
        # Its checksum is right and yet it cannot be read: whatever a library makes of it, no lookup fails for a hint.
        logger.warning("entries of snapshot %s could not be decoded", wanted.span.key, exc_info=True)
        return HintProblem(HintTrouble.CORRUPT, wanted.span.key, f"{type(error).__name__}: {error}")


def _land(flight: Future[V], work: Callable[[], V]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the waiters must hear of it
        flight.set_exception(error)
        return
    flight.set_result(result)
