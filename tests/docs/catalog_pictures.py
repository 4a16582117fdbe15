"""Draws docs/img/catalog-tables.svg and docs/img/object-life.svg: `python -m tests.docs.catalog_pictures`.

The first shows the requests of a session, a compactor, a collector and a reader in memory: which tables each of them
writes, and which it only reads. The second has the times of the format record. A test compares both with a new drawing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from accel.catalog import CatalogSettings, ObjectCatalog
from accel.catalog.collect import collect, plan_collection
from accel.catalog.keys import (
    COUNTERS,
    NODE_CHECKPOINTS,
    NODE_LIST_HISTORY,
    NODE_LISTS,
    NODES,
    STREAM_SHARDS,
    TABLES,
)
from accel.compaction import CompactionSettings, compact, plan_compaction
from accel.system import SYSTEM
from loaders.format import RecordBatch
from loaders.layout import FORMAT_KEY
from loaders.store import MemoryStore, ObjectStore
from loaders.store.decorated import GETS, DecoratedStore, StoreCall
from loaders.tables import FormatRecord
from tests.docs.drawing import WIDTH, box, drawn, path, text
from tests.docs.pages import ROOT

Answer = TypeVar("Answer")

CATALOG = ROOT / "docs" / "img" / "catalog-tables.svg"
LIFE = ROOT / "docs" / "img" / "object-life.svg"
STYLE: Final = """
    .code { font-family: ui-monospace, SFMono-Regular, Menlo, monospace; }
    .box { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.2; }
    .core { fill: #ddf4ff; stroke: #0969da; }
    .truth { fill: #fff8c5; stroke: #bf8700; }
    .line { fill: none; stroke: #59636e; stroke-width: 1.4; }
    .faint { fill: none; stroke: #d1d9e0; stroke-width: 1.4; }
    .dashed { stroke-dasharray: 5 3; }
    .tip { fill: #59636e; }
    .writes { fill: #0969da; stroke: #0969da; }
    .reads { fill: #ffffff; stroke: #59636e; stroke-width: 1.4; }
    .live { fill: #1a7f37; stroke: #1a7f37; }
    .going { fill: #bc4c00; stroke: #bc4c00; }
    .sign { font-size: 11.5px; font-weight: 600; fill: #ffffff; }
    .dark-sign { fill: #59636e; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .small { fill: #9198a1; }
      .box { fill: #161b22; stroke: #6e7681; }
      .core { fill: #0c2d4d; stroke: #4493f8; }
      .truth { fill: #341a00; stroke: #d29922; }
      .line { stroke: #9198a1; }
      .faint { stroke: #3d444d; }
      .tip { fill: #9198a1; }
      .writes { fill: #1f6feb; stroke: #1f6feb; }
      .reads { fill: #0d1117; stroke: #9198a1; }
      .live { fill: #238636; stroke: #238636; }
      .going { fill: #bd561d; stroke: #bd561d; }
      .sign { fill: #ffffff; }
      .dark-sign { fill: #9198a1; }
    }
  """

# -- the tables --------------------------------------------------------------------------------------------------------

NODE_ID, STREAMS, LARGE_STREAM = 4, (1, 2, 3), 3
BATCH_BYTES, LARGE_BATCH_BYTES = 100, 4000
SETTINGS: Final = CatalogSettings()
ACTORS: Final = {
    "session": "of a broker",
    "compactor": "swaps objects",
    "collector": "deletes",
    "reader": "builds images",
}
MEANINGS: Final = {
    FORMAT_KEY: "the choices for the whole bucket",
    NODES: "which nodes have a list",
    NODE_LISTS: "objects of a node: prepared, live, retired",
    STREAM_SHARDS: "streams: start, owners, own objects",
    NODE_CHECKPOINTS: "where streams of a node ended",
    NODE_LIST_HISTORY: "lists before objects left them",
    COUNTERS: "the next object id",
}
OF_IMAGES: Final = (NODES, NODE_LISTS, STREAM_SHARDS)
CAPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    FORMAT_KEY: dict.fromkeys(ACTORS, "at its start"),
    NODES: {"session": "once a node", "compactor": "first", "collector": "each time", "reader": "first"},
    NODE_LISTS: {
        "session": "each upload",
        "compactor": "each group",
        "collector": "marks, removes",
        "reader": "next",
    },
    STREAM_SHARDS: {
        "session": "open, close, trim",
        "compactor": "own objects",
        "collector": "marks, removes",
        "reader": "next",
    },
    NODE_CHECKPOINTS: {"session": f"each {SETTINGS.checkpoint_commits} commits", "collector": "each time"},
    NODE_LIST_HISTORY: {"compactor": "before each group", "collector": "names"},
    COUNTERS: {
        "session": f"{SETTINGS.ids_block:,} at once",
        "compactor": f"{SETTINGS.ids_block:,} at once",
        "collector": "foreign ids",
    },
}
"""How often, or for what: for each table and each actor that asks for it."""


class Watched(DecoratedStore):
    """Notes which tables are read and written."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.kinds: dict[str, str] = {}

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        place = call.key if call.key == FORMAT_KEY else call.key.removeprefix("accel/tables/").split("/")[0]
        if call.operation not in {*GETS, "list"}:
            self.kinds[place] = "writes"
        else:
            self.kinds.setdefault(place, "reads")
        return send()


def observed() -> dict[str, dict[str, str]]:
    """Of each table and actor: "reads" or "writes", in a run of all of them in memory."""
    store, now_seconds = MemoryStore(), [1_800_000_000.0]
    system = replace(SYSTEM, clock=lambda: now_seconds[0])
    record = FormatRecord(namespace="shop", stream_buckets=1)
    ObjectCatalog.init(store, record, system=system)
    kinds: dict[str, dict[str, str]] = defaultdict(dict)

    def watch(actor: str, act: Callable[[ObjectCatalog], object]) -> None:
        watched = Watched(store)
        with ObjectCatalog.open(watched, system=system) as catalog:
            act(catalog)
        for table, kind in watched.kinds.items():
            kinds[table][actor] = kind

    watch("session", _write)
    watch("compactor", _compact)
    with ObjectCatalog.open(store, system=system) as catalog:
        catalog.trim({LARGE_STREAM: catalog.stream_end(LARGE_STREAM) - 1})  # retires its own objects
    now_seconds[0] += record.retired_seconds + record.prepared_seconds
    watch("collector", lambda catalog: collect(catalog, plan_collection(catalog)))
    watch("reader", lambda catalog: catalog.images().current())
    return {table: kinds[table] for table in MEANINGS}


def _write(catalog: ObjectCatalog) -> None:
    with catalog.open_node(NODE_ID) as writer:
        writer.open_streams(STREAMS)
        for _ in range(SETTINGS.checkpoint_commits + 1):
            writer.upload({each: [_batch(each, writer.end(each) or 0)] for each in STREAMS})


def _batch(stream_id: int, start: int) -> RecordBatch:
    size_bytes = LARGE_BATCH_BYTES if stream_id == LARGE_STREAM else BATCH_BYTES
    return RecordBatch(stream_id, epoch=1, base_offset=start, count=100, payload=bytes(size_bytes))


def _compact(catalog: ObjectCatalog) -> None:
    settings = CompactionSettings(
        rewrite_all=True, min_age_seconds=0, target_objects=3, split_size_bytes=5 * LARGE_BATCH_BYTES
    )
    compact(catalog, plan_compaction(catalog, settings))


LEFT, HEAD, PITCH, ROW = 16, 88, 58, 50
COLUMN, COLUMN_LEFT = 110, 304


def tables_picture() -> str:
    """A row for each table, a column for each actor."""
    kinds, below = observed(), HEAD + PITCH * len(MEANINGS)
    shapes = [
        text(LEFT, 40, "Readers and writers of the tables", "name"),
        text(LEFT, 58, "each key by compare-and-set; no lock, no server", "small"),
    ]
    for number, (actor, does) in enumerate(ACTORS.items()):
        x = COLUMN_LEFT + COLUMN * number
        shapes.append(path("faint", f"M{x + 50} 72 V{below - 8}"))
        shapes.append(box("box core" if actor == "session" else "box", x, 20, 100, 52, 6))
        shapes.append(text(x + 50, 42, actor, "name", "middle"))
        shapes.append(text(x + 50, 58, does, "small", "middle"))
    for number, (table, meaning) in enumerate(MEANINGS.items()):
        shapes += _row(table, meaning, kinds[table], HEAD + PITCH * number)
    shapes.append(box("box truth", LEFT, below + 6, 14, 12))
    shapes.append(text(36, below + 16, "what an image is made of", "small"))
    shapes.append(
        text(WIDTH - LEFT, below + 16, "undo reads the history; readers need no right to write", "small", "end")
    )
    described = [
        f"The {actor} {kind} {_joined([table for table in MEANINGS if kinds[table].get(actor) == kind])}."
        for actor in ACTORS
        for kind in ("writes", "reads")
        if any(kinds[table].get(actor) == kind for table in MEANINGS)
    ]
    return drawn("The tables of the catalog, their writers and readers", " ".join(described), below + 34, shapes, STYLE)


def _joined(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _row(table: str, meaning: str, kinds: Mapping[str, str], top: int) -> Iterator[str]:
    if kinds.keys() != CAPTIONS[table].keys():
        raise AssertionError(f"expected captions of {table} for {sorted(kinds)}, found {sorted(CAPTIONS[table])}")
    yield box("box truth" if table in OF_IMAGES else "box", LEFT, top, WIDTH - 2 * LEFT, ROW, 6)
    yield text(LEFT + 12, top + 21, table, "name")
    yield text(LEFT + 12, top + 38, meaning, "small")
    for number, actor in enumerate(ACTORS):
        x = COLUMN_LEFT + COLUMN * number + 50
        if actor not in kinds:
            yield path("faint", f"M{x} {top + 1} V{top + ROW - 1}")
            continue
        yield box(kinds[actor], x - 27, top + 8, 54, 18, 9)
        yield text(x, top + 21, kinds[actor], "sign" if kinds[actor] == "writes" else "sign dark-sign", "middle")
        yield text(x, top + 41, CAPTIONS[table][actor], "small", "middle")


# -- the life of an object ---------------------------------------------------------------------------------------------

STATES: Final = {"prepared": (40, 150), "live": (194, 190), "retired": (388, 216), "pending": (608, 64)}
"""Of each state where its bar begins, and how long it is."""

COLOURS: Final = {"prepared": "writes", "live": "live"}
STEPS: Final = {"prepared": "prepare", "live": "commit", "retired": "compaction, trim", "pending": "collector"}
TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
    ' orient="auto-start-reverse"><path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
)
ARROW: Final = ' marker-end="url(#tip)"'


def life_picture() -> str:
    """The states of an object, from left to right, and how long each of them lasts."""
    record = FormatRecord(namespace="any")
    shapes = [
        TIP,
        text(LEFT, 30, "The states of an object in the catalog", "name"),
        text(LEFT, 48, "times of the format record, with their defaults; lengths are not to scale", "small"),
        *_bars(),
        *_times(record),
        *_endings(record),
    ]
    return drawn("The life of an object in the catalog", _life_text(record), 372, shapes, STYLE)


def duration_text(seconds: float) -> str:
    """A time in the largest unit that divides it."""
    for unit_seconds, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds % unit_seconds == 0 and seconds > unit_seconds:
            return f"{seconds / unit_seconds:g} {unit}"
    return f"{seconds / 60:g} min"


def _bars() -> Iterator[str]:
    for state, (x, width) in STATES.items():
        yield box(COLOURS.get(state, "going"), x, 84, width, 34, 4)
        yield text(x + width / 2, 105, state, "sign", "middle")
        yield path("line", f"M{x - 2 * (state != 'prepared')} 66 V84", ARROW)
        yield text(x + 6 - 2 * (state != "prepared"), 76, STEPS[state], "small")
    yield text(708, 105, "deleted", "small", "middle")
    yield path("line", "M672 101 H684")


def _times(record: FormatRecord) -> Iterator[str]:
    skew, retired = duration_text(record.clock_skew_seconds), duration_text(record.retired_seconds)
    prepared = (f"{duration_text(record.prepared_seconds)} by default,", "or by the writer")
    retention = (
        f"{duration_text(record.retention_seconds)}, at least twice the image age,",
        f"and clock_skew_seconds, {skew}: {retired}",
    )
    for state, name, lines in (("prepared", "prepared_seconds", prepared), ("retired", "retention_seconds", retention)):
        x, width = STATES[state]
        yield path("line", f"M{x} 135 v10 M{x + width} 135 v10 M{x} 140 H{x + width}")
        yield text(x + width / 2, 158, name, "name small code", "middle")
        for number, line in enumerate(lines):
            yield text(x + width / 2, 174 + 16 * number, line, "small", "middle")
    yield text(289, 142, "as long as it is needed", "small", "middle")
    x, width = STATES["retired"]
    yield box("box core", x, 214, 60, 22, 4)
    yield text(x + 68, 225, "max_image_age_seconds", "small code")
    age = duration_text(record.max_image_age_seconds)
    yield text(x + 68, 240, f"{age}: readers may have an image with it", "small")
    yield box("box truth", x, 254, width, 22, 4)
    yield text(x + width / 2, 269.5, "undo can bring it back", "small", "middle")
    yield text(x + width + 10, 269.5, "no longer", "small")


def _endings(record: FormatRecord) -> Iterator[str]:
    yield path("line dashed", "M115 198 V226", ARROW)
    yield box("box", 40, 228, 304, 50, 6)
    yield text(52, 249, "not committed in time")
    yield text(52, 267, "out of the list, then deleted; a late commit fails", "small")
    yield box("box", 40, 298, 704, 50, 6)
    yield text(52, 319, "an object of this catalog that nothing lists")
    yield text(52, 337, "orphan_seconds", "name small code")
    orphan = duration_text(record.orphan_seconds)
    yield text(166, 337, f"{orphan}: a writer or collector died and left it; deleted when it is older", "small")


def _life_text(record: FormatRecord) -> str:
    return (
        f"An id is prepared for prepared_seconds, {duration_text(record.prepared_seconds)}. If it is committed within "
        "that time, its object is live as long as it is needed. A compaction or a trim retires it. It stays retired "
        f"for the larger one of retention_seconds, {duration_text(record.retention_seconds)}, and twice "
        f"max_image_age_seconds, {duration_text(record.max_image_age_seconds)}, and for clock_skew_seconds, "
        f"{duration_text(record.clock_skew_seconds)}: {duration_text(record.retired_seconds)}. In that time readers "
        "with older images find it, and an undo can bring it back. Then it is delete pending, and then deleted. An id "
        "that is not committed in time is taken out of the list, and its object is deleted. An object that nothing "
        f"lists is deleted after orphan_seconds, {duration_text(record.orphan_seconds)}."
    )


if __name__ == "__main__":
    if MEANINGS.keys() != {FORMAT_KEY, *TABLES}:
        raise SystemExit(f"expected a row for each of {TABLES}")
    CATALOG.write_text(tables_picture())
    LIFE.write_text(life_picture())
