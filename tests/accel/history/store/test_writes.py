"""The list of writes in writes.md is complete: every write of every workflow, and no other.

Each workflow runs over a store and a host that record what is written and ordered: which key, and under which
condition. `WRITES` says the discipline of each; the page says the same, with the argument. Workflows that make and
delete streams and scopes are not among them, nor are marks of processors.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from loaders.layout import CONDITIONS_KEY
from loaders.store import MemoryStore
from loaders.store.base import ALWAYS, CreateOnly, IfMatch
from loaders.store.decorated import DecoratedStore
from tests.accel.history.store.bench import Bench, ids
from tests.accel.history.store.watching import WatchedHost
from tests.accel.history.store.workflows import WORKS, scaled, transactions_of_before, two_segments
from tests.conformance.history_world import SCOPE, STREAM
from tests.docs.pages import table_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from accel.history.store import Stream
    from loaders.store.base import Body, Condition, DeleteFailures

Write = tuple[str, str]
"""A kind of keys, and how it is written."""

CREATE, COMPARE, ERASE, ORDER = "create", "compare-and-set", "erase", "order"
CONDITIONS: dict[type, str] = {CreateOnly: CREATE, IfMatch: COMPARE}

WRITES: dict[Write, str] = {
    ("state", COMPARE): "holds the id",
    ("request-<id>", CREATE): "own name",
    ("request-<id>", COMPARE): "holds the version of the state",
    ("request-<id>", ERASE): "name never used again",
    ("configuration", COMPARE): "holds the id",
    ("truncation", COMPARE): "holds the id",
    ("segmentStreams", COMPARE): "monotonic",
    ("segmentStream-<segment>", CREATE): "content stays",
    ("epochRecord-<epoch>", CREATE): "content follows from the plan",
    ("historyTimeSeriesChunk-<chunk>", CREATE): "monotonic",
    ("historyTimeSeriesChunk-<chunk>", COMPARE): "monotonic",
    ("historyIndex", COMPARE): "monotonic",
    ("historyIndex-part-<number>", CREATE): "content follows from the root",
    ("historyIndex-part-<number>", ERASE): "name never used again",
    ("historyIndex-leaf-<number>", CREATE): "content follows from the parts",
    ("segmentSealedEpochPath-<segment>", CREATE): "content follows from the plan",
    ("segmentsSealedSizeMapShard-<shard>", CREATE): "monotonic",
    ("segmentsSealedSizeMapShard-<shard>", COMPARE): "monotonic",
    ("currentEpochRecord", COMPARE): "monotonic",
    ("commitOrder", COMPARE): "own entries",
    ("<transaction>", CREATE): "own name",
    ("<transaction>", COMPARE): "own content",
    ("<transaction>", ERASE): "name never used again",
    ("transactionIds", COMPARE): "monotonic",
    ("completedTransactionsBatch-<batch>", CREATE): "content stays",
    ("completedTransactionsBatches", CREATE): "mark",
    ("epochsWithTransactions", CREATE): "mark",
    ("epochsWithTransactions", ERASE): "mark",
    ("!table", CREATE): "mark",
    ("!table", ERASE): "mark",
    ("retention", COMPARE): "own entries",
    ("retentionCuts-<time>", CREATE): "content stays",
    ("retentionCuts-<time>", ERASE): "purged",
    ("host: create", ORDER): "taken twice",
    ("host: seal", ORDER): "taken twice",
    ("host: truncate", ORDER): "taken twice",
    ("host: delete", ORDER): "taken twice",
    ("host: merge", ORDER): "taken twice",
    ("host: abort", ORDER): "taken twice",
}

KINDS = (
    (r"request-[0-9a-f-]{36}", "request-<id>"),
    (r"(segmentStream|segmentSealedEpochPath|markers)-\d+", r"\1-<segment>"),
    (r"epochRecord-\d+", "epochRecord-<epoch>"),
    (r"historyTimeSeriesChunk-\d+", "historyTimeSeriesChunk-<chunk>"),
    (r"historyIndex-(part|leaf)-\d+", r"historyIndex-\1-<number>"),
    (r"segmentsSealedSizeMapShard-\d+", "segmentsSealedSizeMapShard-<shard>"),
    (r"retentionCuts-\d+", "retentionCuts-<time>"),
)


def kind_of(key: str) -> str:
    """The kind of an object's key."""
    table, name = map(unquote, key.rsplit("/", 2)[1:])
    if name == "!table":
        return name
    if "/transactionsInEpoch-" in table:
        return "<transaction>"
    if table.startswith("_system/completedTransactionsBatch-"):
        return "completedTransactionsBatch-<batch>"
    for part in ("completedTransactionsBatches", "epochsWithTransactions"):
        if part in table:
            return part
    for pattern, kind in KINDS:
        if re.fullmatch(pattern, name):
            return re.sub(pattern, kind, name)
    return name


class Recorded(DecoratedStore):
    """Records what is written, and how."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.writes: set[Write] = set()

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """See `ObjectStore.put`."""
        if key != CONDITIONS_KEY:  # that of the store's probe
            self.writes.add((kind_of(key), CONDITIONS.get(type(condition), "no condition")))
        return super().put(key, body, condition=condition, mark=mark)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self.writes.add((kind_of(key), ERASE))
        super().delete(key)

    def _delete_batch(self, keys: Sequence[str]) -> DeleteFailures:
        self.writes |= {(kind_of(each), ERASE) for each in keys}
        return super()._delete_batch(keys)


def recorded(bench: Bench, act: Callable[[Stream], object]) -> set[Write]:
    """What is written, and which orders are given, while somebody acts."""
    store = Recorded(bench.store)  # type: ignore[arg-type]

    def ordered(name: str, order: Callable[[], object]) -> object:
        if name not in ("tails", "last_times"):
            store.writes.add((f"host: {name}", ORDER))
        return order()

    act(bench.opened(WatchedHost(bench.host, ordered), store).stream(SCOPE, STREAM))
    return store.writes


def made(prepare: Callable[[Bench], object]) -> Bench:
    bench = Bench()
    prepare(bench)
    return bench


def scale_often(stream: Stream) -> None:
    """Long enough for a leaf of the index of times."""
    for number in range(8):
        first = stream.active_segments()[0]
        stream.scale([first.id], [(first.key_start, first.key_end)], 1_100_000 + number)


def claim(stream: Stream) -> None:
    """A request is left, and carried out."""
    stream.carry_out_request(stream.request_scale(ids("0@0"), [(0.0, 0.25), (0.25, 0.5)]))


def transactions(stream: Stream) -> None:
    """Transactions begin; one is committed, one is aborted."""
    stream.transactions.seal(stream.transactions.begin(), commit=True)
    stream.transactions.abort(stream.transactions.begin())
    for _ in range(4):  # more than a block of ids
        stream.transactions.begin()
    stream.commit()


MORE: dict[str, tuple[Callable[[Bench], object], Callable[[Stream], object]]] = {
    "scales": (two_segments, scale_often),
    "claim": (two_segments, claim),
    "transactions": (scaled, transactions),
}

LIFE = {"create scope", "delete scope", "create", "create again", "delete"}


def test_every_workflow_writes_what_the_list_says_and_nothing_else() -> None:
    found: set[Write] = set()
    for name in WORKS.keys() - LIFE:
        bench = WORKS[name].bench()
        store = Recorded(bench.store)  # type: ignore[arg-type]
        WORKS[name].act(bench, store, bench.now_ms)
        assert store.writes <= WRITES.keys(), name
        found |= store.writes
    for name, (prepare, act) in MORE.items():
        writes = recorded(made(prepare), act)
        assert writes <= WRITES.keys(), name
        found |= writes
    for name, prepare in (("truncate", scaled), ("seal", transactions_of_before)):
        bench = made(prepare)
        cut = dict.fromkeys(bench.stream().active_segments().ids.tolist(), 0)
        found |= recorded(bench, (lambda stream: stream.seal()) if name == "seal" else lambda s: s.truncate(cut))  # noqa: B023
    assert found == WRITES.keys()


PAGE = Path(__file__).with_name("writes.md")


def told() -> dict[Write, str]:
    """What the page says."""
    rows = [row for row in table_rows(PAGE) if len(row) == 4 and row[1] in _HOW]
    found: dict[Write, str] = {}
    for key, how, discipline, why in rows:
        assert len(why) > 10, key
        found[key.replace("`", ""), how] = discipline
    return found


_HOW = (CREATE, COMPARE, ERASE, ORDER)


def test_the_page_has_every_write_with_its_discipline() -> None:
    assert told() == WRITES
