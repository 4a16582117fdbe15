"""Draws docs/img/bracket.svg and docs/img/compaction.svg: `python -m tests.docs.object_pictures`.

Both are drawn from what the code does: the first from the trace of a lookup in the example bucket, the second from a
node's list before and after a compaction in memory. A test compares the pictures with a new run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from unittest.mock import patch

from accel import ReadAccelerator
from accel.catalog import ObjectCatalog
from accel.compaction import CompactionSettings, compact, plan_compaction
from accel.image import MetadataImage
from accel.image_source import StaticImages
from accel.lookup.engine import UnderWay
from accel.lookup.explain import Opened, Picked, Round
from accel.system import SYSTEM
from loaders.format import RecordBatch
from loaders.store import MemoryStore, ObjectStore
from loaders.tables import FormatRecord
from tests.docs.drawing import box, drawn, text
from tests.docs.example_bucket import STREAM_ID, fill, take_whole_rounds
from tests.docs.pages import ROOT

SEARCH = ROOT / "docs" / "img" / "bracket.svg"
COMPACTION = ROOT / "docs" / "img" / "compaction.svg"
START, END = 1000, 1600
LEFT = 38
STYLE = """
    .line { fill: none; stroke: #59636e; stroke-width: 1.4; }
    .before, .stream1 { fill: #0969da; stroke: #0969da; }
    .after, .stream2 { fill: #bc4c00; stroke: #bc4c00; }
    .found, .stream3 { fill: #1a7f37; stroke: #1a7f37; }
    .lacks, .box { fill: none; stroke: #59636e; stroke-width: 1.4; }
    .alone { fill: #d1d9e0; stroke: none; }
    .outside { fill: none; stroke: #d1d9e0; stroke-dasharray: 2 2; }
    .retired { fill: none; stroke: #8c959f; stroke-dasharray: 4 3; }
    .sign { font: 600 13px ui-monospace, SFMono-Regular, Menlo, monospace; fill: #ffffff; }
    .stripe { font-size: 9.5px; }
    .lacks-sign { fill: #59636e; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .small, .lacks-sign { fill: #9198a1; }
      .line, .lacks, .box { stroke: #9198a1; }
      .before, .stream1 { fill: #1f6feb; stroke: #1f6feb; }
      .after, .stream2 { fill: #bd561d; stroke: #bd561d; }
      .found, .stream3 { fill: #238636; stroke: #238636; }
      .alone { fill: #3d444d; }
      .outside { stroke: #3d444d; }
      .retired { stroke: #6e7681; }
      .sign { fill: #ffffff; }
    }
  """


# -- the search --------------------------------------------------------------------------------------------------------

CELL, PITCH, CELL_HEIGHT, ROUND_HEIGHT = 20, 23, 26, 84
SIGNS = {"before": "<", "found": "#", "after": ">", "lacks": "o"}
LEGEND = {
    "before": "ends before",
    "found": "holds the offset",
    "after": "starts after",
    "lacks": "lacks the stream",
    "alone": "not opened",
    "outside": "outside the bracket",
}


class Search(NamedTuple):
    """The rounds of a lookup, and the objects that it took."""

    rounds: Sequence[Round]
    taken: Sequence[Picked]


def searched() -> Search:
    """The lookup of the example, in a bucket in memory."""
    store = MemoryStore()
    image = MetadataImage.from_json(fill(store).encode())
    with (
        patch.object(UnderWay, "take", take_whole_rounds),
        ReadAccelerator(StaticImages(image), store) as accelerator,
    ):
        events = accelerator.explain(STREAM_ID, START, END).trace.events
    return Search(
        [each for each in events if isinstance(each, Round)], [each for each in events if isinstance(each, Picked)]
    )


def kind_of(one: Round, opened: Opened) -> str:
    """How an opened object is drawn."""
    if opened.held is None:
        return "lacks"
    if opened.held.end <= one.offset:
        return "before"
    return "found" if opened.held.start <= one.offset else "after"


def cells_of(one: Round) -> list[str]:
    """How each object of the list is drawn in a round."""
    cells = ["alone" if one.low_position < at < one.high_position else "outside" for at in range(one.listed)]
    for at, kind in ((one.low_position, "before"), (one.high_position, "after")):
        if 0 <= at < one.listed:
            cells[at] = kind
    for opened in one.opened:
        cells[opened.position] = kind_of(one, opened)
    return cells


def search_picture() -> str:
    """The search as SVG: a row of the node's list for each round."""
    found = searched()
    shapes = [text(LEFT, 26, f"Which objects hold stream {STREAM_ID} from offset {START}? Oldest object left.")]
    for number, one in enumerate(found.rounds):
        shapes += _round(one, found.rounds[number + 1 :], 58 + number * ROUND_HEIGHT)
    below = 58 + len(found.rounds) * ROUND_HEIGHT
    taken = [f"object {each.found.ref.object_id} [{each.found.start}, {each.found.end})" for each in found.taken]
    shapes.append(text(LEFT, below, f"answer: {', '.join(taken)}", "name"))
    x = float(LEFT)
    for kind, meaning in LEGEND.items():
        shapes.append(box(kind, x, below + 18, 14, 16))
        shapes.append(text(x + 19, below + 30.5, meaning, "small"))
        x += 35 + 5.4 * len(meaning)
    description = " ".join(_round_text(one) for one in found.rounds) + f" Answer: {', '.join(taken)}."
    return drawn(f"A search in {len(found.rounds)} rounds", description, below + 50, shapes, STYLE)


def _round(one: Round, later: Sequence[Round], top: int) -> Iterator[str]:
    yield text(LEFT, top, f"round {one.number}", "name")
    yield text(LEFT + 60, top, f"at {one.offset}: opens {len(one.opened)} of {one.candidates} candidates", "small")
    for at, kind in enumerate(cells_of(one)):
        x = LEFT + at * PITCH
        yield box(kind, x, top + 8, CELL, CELL_HEIGHT)
        if sign := SIGNS.get(kind):
            style = "sign lacks-sign" if kind == "lacks" else "sign"
            yield text(x + CELL / 2, top + 25.5, sign, style, "middle")
    if later and later[0].offset == one.offset:
        low, high = LEFT + later[0].low_position * PITCH, LEFT + later[0].high_position * PITCH + CELL
        yield f'<path class="line" d="M{low} {top + 40} v6 H{high} v-6"/>'
        yield text((low + high) / 2, top + 59, "the bracket", "small", "middle")


def _round_text(one: Round) -> str:
    held = [
        f"object {each.object_id} " + ("lacks it" if each.held is None else f"has [{each.held.start}, {each.held.end})")
        for each in one.opened
    ]
    return f"Round {one.number} at {one.offset} opens {len(held)} of {one.candidates}: {', '.join(held)}."


# -- the compaction ----------------------------------------------------------------------------------------------------

NODE_ID, STREAMS, UPLOADS = 4, (1, 2, 3), 8
LARGE_STREAM = 3
BATCH_BYTES, LARGE_BATCH_BYTES = 1000, 4000
OBJECT_HEIGHT, STRIPE_HEIGHT, OBJECT_WIDTH, OBJECT_GAP = 74, 14, 76, 10


class Listed(NamedTuple):
    """An object: its order id, -1 for an object of one stream; and by stream the [start, end) that it holds."""

    object_id: int
    order_id: int
    spans: Mapping[int, tuple[int, int]]


def compacted() -> tuple[list[Listed], list[Listed]]:
    """The objects of a node before and after a compaction in memory, as readers find them."""
    store, system = MemoryStore(), replace(SYSTEM, clock=lambda: 1_800_000_000.0)
    ObjectCatalog.init(store, FormatRecord(namespace="shop", stream_buckets=1), system=system)
    with ObjectCatalog.open(store, system=system) as catalog:
        with catalog.open_node(NODE_ID) as writer:
            writer.open_streams(STREAMS)
            for number in range(UPLOADS):
                streams = [each for each in STREAMS if each == LARGE_STREAM or (each + number) % len(STREAMS)]
                writer.upload({each: [_batch(each, writer.end(each) or 0)] for each in streams})
        before = _found(catalog, store)
        settings = CompactionSettings(
            rewrite_all=True, min_age_seconds=0, target_objects=3, split_size_bytes=5 * LARGE_BATCH_BYTES
        )
        compact(catalog, plan_compaction(catalog, settings))
        return before, _found(catalog, store)


def _batch(stream_id: int, start: int) -> RecordBatch:
    size_bytes = LARGE_BATCH_BYTES if stream_id == LARGE_STREAM else BATCH_BYTES
    return RecordBatch(stream_id, epoch=1, base_offset=start, count=100, payload=bytes(size_bytes))


def _found(catalog: ObjectCatalog, store: ObjectStore) -> list[Listed]:
    image = catalog.refresh()
    node = image.nodes[NODE_ID]
    order_ids = dict(zip(node.object_ids.tolist(), node.order_ids.tolist(), strict=True))
    spans: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
    with ReadAccelerator(StaticImages(image), store) as accelerator:
        for stream_id in STREAMS:
            for each in accelerator.get_objects(stream_id, 0, limit=UPLOADS).objects:
                spans[each.ref.object_id][stream_id] = (each.start, each.end)
    listed = [Listed(each, order_ids.get(each, -1), held) for each, held in spans.items()]
    return sorted(listed, key=lambda each: (each.order_id, each.object_id))


def compaction_picture() -> str:
    """The compaction as SVG: the node's list before, and after it with the retired objects."""
    before, after = compacted()
    kept, made = {each.object_id for each in before}, [each for each in after if each.order_id >= 0]
    own = [each for each in after if each.order_id < 0]
    place = {each.object_id: LEFT + number * (OBJECT_WIDTH + OBJECT_GAP) for number, each in enumerate(before)}
    retired = [each for each in before if each.object_id not in {one.object_id for one in after}]
    span = place[retired[-1].object_id] + OBJECT_WIDTH - place[retired[0].object_id]
    minutes = FormatRecord(namespace="any").retired_seconds / 60
    shapes = [text(LEFT, 24, f"before: the list of node {NODE_ID} has {len(before)} objects", "name")]
    for each in before:
        shapes += _object(each, place[each.object_id], 50, OBJECT_WIDTH)
    for each in retired:
        x = place[each.object_id]
        shapes.append(f'<path class="line" d="M{x + OBJECT_WIDTH / 2:g} 138 v14"/>')
    left = place[retired[0].object_id]
    shapes.append(f'<path class="line" d="M{left + OBJECT_WIDTH / 2:g} 152 H{left + span - OBJECT_WIDTH / 2:g}"/>')
    shapes.append(
        text(
            LEFT,
            178,
            f"after one conditional write: {len(made)} objects, and one of stream {LARGE_STREAM} alone",
            "name",
        )
    )
    for each in made:
        is_new = each.object_id not in kept
        shapes += _object(each, left if is_new else place[each.object_id], 204, span if is_new else OBJECT_WIDTH)
    for each in own:
        shapes += _object(each, left, 304, span)
    shapes.append(text(LEFT, 382, f"retired for {minutes:g} min, then deleted by gc", "name"))
    for each in retired:
        shapes.append(box("retired", place[each.object_id], 392, OBJECT_WIDTH, 26))
        shapes.append(
            text(place[each.object_id] + OBJECT_WIDTH / 2, 409, f"object {each.object_id}", "small", "middle")
        )
    for number, stream_id in enumerate(STREAMS):
        shapes.append(box(f"stream{stream_id}", LEFT + number * 100, 434, 14, 14))
        shapes.append(text(LEFT + number * 100 + 20, 445.5, f"stream {stream_id}", "small"))
    description = f"Before: {_told(before)}. After: {_told(made)}; objects of one stream: {_told(own)}."
    return drawn("A compaction, before and after", description, 462, shapes, STYLE)


def _object(one: Listed, x: float, top: float, width: float) -> Iterator[str]:
    if one.order_id < 0:
        order = ", listed in the shard of the stream"
    else:
        order = f", order id {one.order_id}" if width > OBJECT_WIDTH else ""
    yield text(x, top - 5, f"object {one.object_id}{order}", "small")
    yield box("box", x, top, width, OBJECT_HEIGHT if one.order_id >= 0 else STRIPE_HEIGHT + 16)
    for stream_id, (start, end) in one.spans.items():
        y = top + 6 + (STREAMS.index(stream_id) * (STRIPE_HEIGHT + 8) if one.order_id >= 0 else 0)
        yield box(f"stream{stream_id}", x + 5, y, width - 10, STRIPE_HEIGHT + 4)
        yield text(x + width / 2, y + 13, f"{start} to {end}", "sign stripe", "middle")


def _told(objects: Sequence[Listed]) -> str:
    return ", ".join(
        f"object {each.object_id} with "
        + " and ".join(f"[{start}, {end}) of stream {stream}" for stream, (start, end) in each.spans.items())
        for each in objects
    )


if __name__ == "__main__":
    SEARCH.write_text(search_picture())
    COMPACTION.write_text(compaction_picture())
