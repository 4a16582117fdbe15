"""`accel catalog init`, `status` and `refresh`: make the catalog of a bucket, and look at it.

`refresh --write-image` saves the image as the JSON that `--image` reads; `MetadataImage.from_dict` has the form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec
from rich import box
from rich.table import Table

from accel.catalog import ObjectCatalog
from accel.catalog.records import NodeList
from accel.catalog.refresh import Snapshot
from accel.cli.options import TIME, StoreChoice, examples, option, output_options, store_options
from accel.image import MetadataImage, NodeImage, StreamImage, version_number
from accel.lookup.explain import count_text
from accel.rendering import Output, Rendered
from accel.system import SYSTEM
from accel.units import size_text, time_text
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.store import CountingStore
from loaders.tables import FormatRecord


@dataclass(frozen=True, slots=True)
class ShownFormat:
    """What holds for a whole bucket."""

    record: FormatRecord

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return msgspec.structs.asdict(self.record)

    def render(self) -> Iterator[Rendered]:
        """One line a field."""
        for name, value in self.to_dict().items():
            yield f"{name:<24}{'not found out' if value is None else value}"


@dataclass(frozen=True, slots=True)
class Status:
    """What a catalog holds."""

    record: FormatRecord
    snapshot: Snapshot
    age_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        nodes = self._nodes()
        image = self.snapshot.built.image
        totals = {name: sum(node[name] for node in nodes) for name in ("live", "prepared", "retired", "bytes")}
        return {
            "format": ShownFormat(self.record).to_dict(),
            "nodes": nodes,
            "total": totals,
            "streams": len(image.streams),
            "stream_objects": sum(len(seen.value.stream_objects) for seen in self.snapshot.buckets),
            "image": {"version": version_number(image.version), "age_seconds": self.age_seconds},
        }

    def render(self) -> Iterator[Rendered]:
        """The format record, a table of the nodes, and a sentence."""
        found = self.to_dict()
        yield from ShownFormat(self.record).render()
        yield ""
        if found["nodes"]:
            yield _node_table(found["nodes"])
            yield ""
        total = found["total"]
        objects = f"{count_text(total['live'], 'live object')}, {size_text(total['bytes'])}"
        yield f"{count_text(len(found['nodes']), 'node')}, {objects}, {count_text(found['streams'], 'stream')}"
        yield f"image {found['image']['version']}, {time_text(self.age_seconds)} old"

    def _nodes(self) -> list[dict[str, int]]:
        return [_node_row(each) for _, each in sorted(self.snapshot.node_lists().items())]


@dataclass(frozen=True, slots=True)
class Refreshes:
    """What it took to read a catalog from nothing, and to read it again."""

    snapshot: Snapshot
    costs: dict[str, dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        lists = self.snapshot.node_lists().values()
        image = self.snapshot.built.image
        return {
            **self.costs,
            "objects": sum(len(each.live) for each in lists),
            "streams": len(image.streams),
            "image_version": version_number(image.version),
        }

    def render(self) -> Iterator[Rendered]:
        """One line a reading."""
        found = self.to_dict()
        for name in ("cold", "again"):
            cost = self.costs[name]
            spent = f"{count_text(cost['requests'], 'request')}, {size_text(cost['bytes'])}"
            yield f"{name:<7}{spent}, {time_text(cost['seconds'])}"
        what = f"{count_text(found['objects'], 'object')}, {count_text(found['streams'], 'stream')}"
        yield f"image {found['image_version']}: {what}"


_DEFAULTS = FormatRecord(namespace="any")
_TIMES = {
    "max_image_age": "Readers serve from no older image.",
    "retention": "How long a compacted object stays, at least.",
    "prepared": "How long a writer may take from preparing an object to committing it.",
    "orphan": "How old an object that nothing lists must be before it may be deleted.",
    "clock_skew": "How far the clocks of two machines may differ.",
}


def format_options(command: Any) -> Any:
    """An option for each time of the format record -> ``max_image_age`` and the like, in seconds."""
    for name, text in reversed(_TIMES.items()):
        default = f"{getattr(_DEFAULTS, f'{name}_seconds'):g}s"
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, type=TIME, metavar="TIME", default=default, show_default=True, help=text)(command)
    return command


@click.command(
    short_help="Make an empty catalog.",
    epilog=examples(
        "accel catalog init --store s3://bucket --namespace _kafka_rZdE0DjZSrqy96PXrMUZVw",
        "accel catalog init --store s3://bucket --namespace shop --max-image-age 5m --stream-buckets 64",
    ),
)
@option("--namespace", required=True, help="The cluster's name in the keys of its objects.")
@format_options
@click.option(
    "--stream-buckets", type=int, default=_DEFAULTS.stream_buckets, show_default=True, help="Never changes afterwards."
)
@store_options
@output_options
def init(*, namespace: str, stream_buckets: int, store: StoreChoice, output: Output, **times: float) -> None:
    """Make an empty catalog, and print its format record; one made with the same choices is left alone."""
    seconds: dict[str, Any] = {f"{name}_seconds": value for name, value in times.items()}
    try:
        wanted = FormatRecord(namespace=namespace, stream_buckets=stream_buckets, **seconds)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    opened = store.open(output)
    ObjectCatalog.init(opened, wanted)
    with ObjectCatalog.open(opened) as catalog:
        output.show(ShownFormat(catalog.format))


@click.command(
    epilog=examples(
        "accel catalog status --store s3://bucket", "accel catalog status --store s3://bucket --output json"
    )
)
@store_options
@output_options
def status(*, store: StoreChoice, output: Output) -> None:
    """Show what a catalog holds: its format record, nodes, objects and streams."""
    with ObjectCatalog.open(store.open(output)) as catalog:
        started = SYSTEM.timer()
        snapshot = catalog.refresh_snapshot()
        output.show(Status(catalog.format, snapshot, SYSTEM.timer() - started))


@click.command(
    short_help="Read the image cold and again, and tell the cost.",
    epilog=examples(
        "accel catalog refresh --store s3://bucket",
        "accel catalog refresh --store s3://bucket --write-image image.json",
    ),
)
@click.option("--write-image", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Save the image.")
@store_options
@output_options
def refresh(*, write_image: Path | None, store: StoreChoice, output: Output) -> None:
    """Read the image cold and then again, and tell what each took; --write-image saves it for --image."""
    opened = store.open(output)
    with ObjectCatalog.open(opened) as catalog:
        costs = {name: _cost_of_refresh(catalog, opened) for name in ("cold", "again")}
        snapshot = catalog.refresh_snapshot()
    if write_image is not None:
        write_image.write_text(json.dumps(image_data(snapshot.built.image)))
    output.show(Refreshes(snapshot, costs))


def _cost_of_refresh(catalog: ObjectCatalog, store: CountingStore) -> dict[str, Any]:
    store.reset()
    started = SYSTEM.timer()
    catalog.refresh()
    seconds = SYSTEM.timer() - started
    total = store.snapshot().total
    return {"requests": total.requests, "bytes": total.received_bytes, "seconds": seconds}


def _node_row(node_list: NodeList) -> dict[str, int]:
    return {
        "node_id": node_list.node_id,
        "epoch": node_list.epoch,
        "live": len(node_list.live),
        "prepared": len(node_list.prepared),
        "retired": len(node_list.retired),
        "bytes": int(node_list.live["size_bytes"].sum()),
    }


def _node_table(rows: list[dict[str, int]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("node", "epoch", "live", "prepared", "retired", "size"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        counts = [str(row[name]) for name in ("node_id", "epoch", "live", "prepared", "retired")]
        table.add_row(*counts, size_text(row["bytes"]))
    return table


def image_data(image: MetadataImage) -> dict[str, Any]:
    """An image as plain data. Complexity: O(objects + streams); a version of many keys becomes its total."""
    return {
        "namespace": image.namespace,
        "version": version_number(image.version),
        "streams": [_stream(image.streams[stream_id]) for stream_id in sorted(image.streams)],
        "nodes": [_node(image.nodes[node_id]) for node_id in sorted(image.nodes)],
        "unordered_streams": sorted(image.unordered_streams),
    }


def _stream(stream: StreamImage) -> dict[str, Any]:
    return {
        "stream_id": stream.stream_id,
        "start_offset": stream.start_offset,
        "ranges": [
            {"range_index": each.range_index, "start": each.start, "end": each.end, "node_id": each.node_id}
            for each in stream.ranges
        ],
        "stream_objects": [
            {**_object(each.ref), "start": each.start, "end": each.end} for each in stream.stream_objects
        ],
    }


def _node(node: NodeImage) -> dict[str, Any]:
    orders = node.order_ids.tolist()
    objects = [{**_object(ref), "order_id": order} for ref, order in zip(node.refs, orders, strict=True)]
    return {"node_id": node.node_id, "stream_set_objects": objects}


def _object(ref: ObjectRef) -> dict[str, int]:
    facts = {"size": ref.size_bytes, "index_size": ref.index_size_bytes, "attributes": ref.attributes}
    return {"object_id": ref.object_id} | {name: value for name, value in facts.items() if value != UNKNOWN}
