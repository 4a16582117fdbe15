"""`accel catalog init` and `status`: create the catalog of a bucket, and show it, with its hints and costs.

`status --write-image` saves the image as the JSON that `--image` reads; `MetadataImage.from_dict` documents the form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from accel.catalog import ObjectCatalog
from accel.catalog.argument_checks import refuse_unknown_nodes
from accel.catalog.bad_objects import set_aside_of, set_aside_text
from accel.catalog.collect import count_waiting
from accel.catalog.dead_objects import Space, measure_space
from accel.catalog.job_runs import BUILD_HINTS, COMPACT, GC, read_runs
from accel.catalog.parts import MILLISECONDS, CatalogParts
from accel.catalog.proof import find_strangers
from accel.catalog.records import NodeList, Rows, ids_of, joined_ids
from accel.catalog.refresh import CatalogState
from accel.cli.catalog.hints import node_option
from accel.cli.objects.verify import EXIT_PROBLEMS
from accel.cli.options import TIME, StoreChoice, command, end_with, option, store_options
from accel.compaction import CompactionSettings
from accel.errors import AccessDenied
from accel.hint_building.stored import StoredHint, stored_hints
from accel.image import MetadataImage, NodeImage, StreamImage, version_number
from accel.rendering import Column, Fields, Output, Rendered, Shown, table_of, word
from accel.system import SYSTEM
from accel.units import age_text, count_text, moment_text, size_text, time_text
from loaders.hints import HintTrouble
from loaders.object_ref import UNKNOWN, ObjectRef
from loaders.store import CountingStore
from loaders.tables import FormatRecord

_DEFAULTS = FormatRecord(namespace="any")
_TIMES = {
    "max_image_age": "Readers do not answer from an older image.",
    "retention": "Minimum time before a compacted object is deleted.",
    "prepared": "Maximum time from preparing an object to committing it.",
    "orphan": "Minimum age at which an unlisted object may be deleted.",
    "clock_skew": "Maximum difference between the clocks of two machines.",
}


def format_options(command: Any) -> Any:
    """An option for each time of the format record -> ``max_image_age`` and the like, in seconds."""
    for name, text in reversed(_TIMES.items()):
        default = f"{getattr(_DEFAULTS, f'{name}_seconds'):g}s"
        flag = "--" + name.replace("_", "-")
        command = click.option(flag, type=TIME, metavar="TIME", default=default, show_default=True, help=text)(command)
    return command


@command(
    "Create an empty catalog.",
    "accel catalog init --store s3://bucket --namespace _kafka_rZdE0DjZSrqy96PXrMUZVw",
    "accel catalog init --store s3://bucket --namespace shop --max-image-age 5m --stream-buckets 64",
)
@option("--namespace", required=True, help="The cluster's name in the keys of its objects.")
@format_options
@click.option(
    "--stream-buckets", type=int, default=_DEFAULTS.stream_buckets, show_default=True, help="It never changes."
)
@store_options
def init(*, namespace: str, stream_buckets: int, store: StoreChoice, output: Output, **times: float) -> None:
    """Create an empty catalog, and print its format record; repeating it with the same choices changes nothing."""
    seconds: dict[str, Any] = {f"{name}_seconds": value for name, value in times.items()}
    try:
        wanted = FormatRecord(namespace=namespace, stream_buckets=stream_buckets, **seconds)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    opened = store.open()
    notes = ObjectCatalog.init(opened, wanted)
    with ObjectCatalog.open(opened) as catalog:
        data = msgspec.structs.asdict(catalog.format) | {"notes": notes}
        output.show(Shown(data, [*_format_lines(catalog.format), *(f"note: {each}" for each in notes)]))


@command(
    None,
    "accel catalog status --store s3://bucket",
    "accel catalog status --check-hints --output json --store s3://bucket",
    "accel catalog status --write-image image.json --store s3://bucket",
)
@node_option
@click.option("--exact", "is_exact", is_flag=True, help="Also read hints, objects with dead data, and a listing.")
@click.option("--check-hints", is_flag=True, help="Read every filter, with Accel and with pybloom-live.")
@click.option("--write-image", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Save the image.")
@store_options
def status(
    *,
    nodes: frozenset[int] | None,
    is_exact: bool,
    check_hints: bool,
    write_image: Path | None,
    store: StoreChoice,
    output: Output,
) -> None:
    """Show the contents of a catalog: format record, nodes, objects, streams, space, and what waits for a job.

    It reads the image and the records of runs. What waits for compact, build-hints and gc is estimated from both; the
    dry runs that it names say it exactly. Retired objects may still be restored; those that are waiting are being
    deleted. --write-image saves the image for --image.

    --exact also measures dead bytes, which are data of deleted and truncated streams in listed objects: one request for
    each object that may have some, for at most 1,000; of more objects they are estimated. It shows the hints of all
    nodes by two small requests each, and lists keys of other systems. So does --node, for these nodes, and
    --check-hints, which also reads the packs.
    Exits with 3 if a hint cannot be used, or if a filter is damaged, passes more than 1.25 % of absent streams, or
    differs when read with pybloom-live. Missing hints are not a problem.
    """
    opened = store.open()
    with ObjectCatalog.open(opened) as catalog:
        state, cost = _refreshed(catalog, opened)
        is_exact = is_exact or check_hints or nodes is not None
        waiting = _waiting(catalog.parts, state)
        shards, lists = [seen.value for seen in state.shards], state.node_lists()
        refuse_unknown_nodes(nodes, lists)
        space = measure_space(catalog.parts, [lists[each] for each in sorted(lists)], shards, is_opened=is_exact)
        strangers = _strangers(catalog, state) if is_exact else None
        live = {node_id: lists[node_id].live for node_id in sorted(nodes or lists) if is_exact}
        hints = _stored_hints(opened, catalog.parts.layout.namespace, live, output, is_checked=check_hints)
    if write_image is not None:
        write_image.write_text(json.dumps(image_data(state.built.image)))
    output.show(_shown_status(catalog.format, state, space, strangers, cost, hints, waiting=waiting, is_exact=is_exact))
    if not all(each.is_sound for each in hints):
        end_with(EXIT_PROBLEMS)


def _refreshed(catalog: ObjectCatalog, store: CountingStore) -> tuple[CatalogState, dict[str, Any]]:
    before, started = store.snapshot(), SYSTEM.timer()
    state = catalog.refresh_state()
    seconds = SYSTEM.timer() - started
    total = (store.snapshot() - before).total
    return state, {"requests": total.requests, "bytes": total.received_bytes, "seconds": seconds}


def _waiting(parts: CatalogParts, state: CatalogState) -> dict[str, Any]:
    """What waits for the jobs, as the image and the records of runs show. A request for each kind of run."""
    now_ms, runs = parts.now_ms(), read_runs(parts.keys.tables)
    skew_seconds, default_max = parts.format.clock_skew_seconds, CompactionSettings().max_objects_per_node
    stats = runs.stats(state.built.image, now_ms, skew_seconds, default_max)
    seconds = stats.success_age_seconds.get(BUILD_HINTS)
    since_ms = -1 if seconds is None else now_ms - int(seconds * MILLISECONDS)
    listed = [node_list.live["data_time_ms"] for node_list in state.node_lists().values()]
    return {
        COMPACT: stats.waiting_objects,
        BUILD_HINTS: sum(int((times > since_ms).sum()) for times in listed),
        GC: count_waiting(parts, state, now_ms),
        "success_age_seconds": dict(stats.success_age_seconds),
    }


def _stored_hints(
    store: CountingStore, namespace: str, live: Mapping[int, Rows], output: Output, *, is_checked: bool
) -> list[StoredHint]:
    found: list[StoredHint] = []
    with output.progress("looking at hints", len(live), moved=store.moved_bytes) as tell:
        for node_id, rows in live.items():
            found += stored_hints(store, namespace, node_id, rows, now_seconds=SYSTEM.clock(), is_checked=is_checked)
            tell()
    return found


def _format_lines(record: FormatRecord) -> Iterator[str]:
    for name, value in msgspec.structs.asdict(record).items():
        yield f"{name:<24}{'unknown' if value is None else value}"


def _node_row(node_list: NodeList, space: Space, *, is_exact: bool) -> dict[str, Any]:
    return {
        "node_id": node_list.node_id,
        "epoch": node_list.epoch,
        "live": len(node_list.live),
        "prepared": len(node_list.prepared),
        "retired": len(node_list.retired),
        "bytes": space.size_bytes,
        **_space(space, is_exact=is_exact),
        "set_aside": [row | {"why": set_aside_text(row)} for row in set_aside_of(node_list)],
    }


def _space(space: Space, *, is_exact: bool = True) -> dict[str, int | None]:
    """The parts of a space; without the objects opened, what is live and what is dead is not known."""
    unknown = () if is_exact else ("live_bytes", "dead_bytes")
    sizes = {name: size_bytes for name, size_bytes in space.to_dict().items() if name != "size_bytes"}
    return {name: None if name in unknown else size_bytes for name, size_bytes in sizes.items()}


def _strangers(catalog: ObjectCatalog, state: CatalogState) -> list[str] | None:
    """Keys of another system's objects in the namespace, among some; None without the permission to list."""
    known = [ids_of(node_list) for node_list in state.node_lists().values()]
    known += [ids_of(seen.value) for seen in state.shards]
    try:
        return find_strangers(catalog.parts, joined_ids(known))
    except AccessDenied:
        return None


def _shown_status(
    record: FormatRecord,
    state: CatalogState,
    space: tuple[dict[int, Space], Space],
    strangers: list[str] | None,
    cost: Mapping[str, Any],
    hints: Sequence[StoredHint],
    *,
    waiting: Mapping[str, Any],
    is_exact: bool,
) -> Shown:
    image = state.built.image
    by_node, own = space
    lists = sorted(state.node_lists().items())
    nodes = [_node_row(node_list, by_node[node_id], is_exact=is_exact) for node_id, node_list in lists]
    summed = ("live", "prepared", "retired", "bytes", *_space(own))
    data = {
        "format": msgspec.structs.asdict(record),
        "nodes": nodes,
        "total": {
            name: None if any(node[name] is None for node in nodes) else sum(node[name] for node in nodes)
            for name in summed
        },
        "streams": len(image.streams),
        "stream_objects": sum(len(seen.value.stream_objects) for seen in state.shards),
        "space_of_stream_objects": {"bytes": own.size_bytes, **_space(own)},
        "delete_pending": _delete_pending(state),
        "strangers": strangers,
        "image": {"version": version_number(image.version), "cold": cost},
        "hints": msgspec.to_builtins(hints),
        "estimated": dict(waiting),
        "exact": is_exact,
    }
    return Shown(data, _status_lines(record, data, hints))


def _delete_pending(state: CatalogState) -> dict[str, int]:
    """The objects that gc may delete: those that stay after a gc are not proven to be ours."""
    retired = [node_list.retired for node_list in state.node_lists().values()]
    retired += [seen.value.retired for seen in state.shards]
    sizes = [rows["size_bytes"][rows["delete_pending"] != 0] for rows in retired]
    return {"objects": sum(map(len, sizes)), "bytes": sum(int(each.sum()) for each in sizes)}


_NODES: tuple[Column[Fields], ...] = (
    Column("node", "node_id"),
    *(Column(name, name) for name in ("epoch", "live", "prepared", "retired")),
    Column("size", lambda node: size_text(node["bytes"])),
    Column("dead", lambda node: "" if node["dead_bytes"] is None else size_text(node["dead_bytes"])),
    Column("waiting", lambda node: size_text(node["waiting_bytes"])),
)


def _status_lines(record: FormatRecord, data: Mapping[str, Any], hints: Sequence[StoredHint]) -> Iterator[Rendered]:
    """The format record, tables of the nodes and their hints, and summary lines."""
    yield from _format_lines(record)
    yield ""
    if data["nodes"]:
        yield table_of(data["nodes"], *_NODES)
        yield ""
    for node in data["nodes"]:
        for bad in node["set_aside"]:
            since = moment_text(bad["since_ms"])
            yield f"set aside  object {bad['object_id']} of node {node['node_id']}: {bad['why']}, first at {since}"
    if hints:
        yield from _hint_lines(hints)
    for name, row in (("objects of many streams", data["total"]), ("stream objects", data["space_of_stream_objects"])):
        sizes_of = {kind: row[f"{kind}_bytes"] for kind in ("live", "dead", "retired", "waiting")}
        yield f"{name}: {', '.join(f'{size_text(size)} {kind}' for kind, size in sizes_of.items() if size is not None)}"
    total, image = data["total"], data["image"]
    objects = f"{count_text(total['live'], 'live object')}, {size_text(total['bytes'])}"
    yield f"{count_text(len(data['nodes']), 'node')}, {objects}, {count_text(data['streams'], 'stream')}"
    if (pending := data["delete_pending"])["objects"]:
        what = f"{count_text(pending['objects'], 'object')}, {size_text(pending['bytes'])}"
        yield f"delete pending: {what}; what gc leaves of them nothing proves to be ours (gc --id ID shows one)"
    if strangers := data["strangers"]:
        yield f"another system writes to this namespace: {count_text(len(strangers), 'object')} seen, {strangers[0]!r}"
    yield f"image {image['version']}: {_cost_text('cold', image['cold'])}"
    if not data["exact"]:
        yield "dead bytes, hints and keys of other systems were not looked at: --exact does"
    for kind, (what, dry_run) in _WAITING.items():
        age = data["estimated"]["success_age_seconds"].get(kind)
        last = "it never did all its work" if age is None else f"it last did all its work {age_text(age)} ago"
        yield f"estimated: {count_text(data['estimated'][kind], 'object')} {what}; {last}; exactly: {dry_run}"


_WAITING = {
    COMPACT: ("above the limit wait for compact", "accel catalog compact --dry-run"),
    BUILD_HINTS: ("came since build-hints", "accel catalog build-hints --dry-run"),
    GC: ("wait for gc", "accel catalog gc, without --yes"),
}


def _cost_text(name: str, cost: Mapping[str, Any]) -> str:
    return f"{name} {count_text(cost['requests'], 'request')}, {size_text(cost['bytes'])}, {time_text(cost['seconds'])}"


def _hint_lines(found: Sequence[StoredHint]) -> Iterator[Rendered]:
    columns: list[Column[StoredHint]] = [
        Column("node", lambda each: each.node_id),
        word("kind", lambda each: each.kind.value.removesuffix("s")),
        word("state", lambda each: each.trouble.value if each.trouble else "usable"),
        Column("age", lambda each: "" if each.age_seconds is None else time_text(each.age_seconds)),
        Column("size", lambda each: size_text(each.size_bytes) if each.entries else ""),
        Column("unused", lambda each: size_text(each.unused_bytes) if each.unused_bytes else ""),
        Column("entries", lambda each: each.entries or ""),
        Column("covers", lambda each: f"{each.covered} of {each.listed}"),
        Column("unlisted", lambda each: each.unlisted or ""),
    ]
    if any(each.check for each in found):
        columns.append(word("filters read", _quality))
    yield table_of(found, *columns)
    yield ""
    troubled = [each for each in found if each.trouble not in {None, HintTrouble.MISSING}]
    yield from (f"unusable: node {each.node_id}: {each.problem}" for each in troubled)
    lacking = sum(each.listed - each.covered for each in found)
    sound = "all usable" if all(each.is_sound for each in found) else "some must be rebuilt: accel catalog build-hints"
    listed = sum(each.listed for each in found)
    yield f"{count_text(len(found), 'hint')}, {sound}; {lacking} of {listed} objects not covered (see build-hints)"


def _quality(each: StoredHint) -> str:
    check = each.check
    if check is None:
        return ""
    parts = [f"{check.read}"]
    if check.false_positive_share is not None and check.worst_share is not None:
        parts.append(f"{check.false_positive_share:.2%} of absent streams pass, {check.worst_share:.2%} at worst")
    faults = {"unreadable": check.unreadable, "bad": check.bad, "other to pybloom-live": check.differing}
    return ", ".join([*parts, *(f"{count} {name}" for name, count in faults.items() if count)])


def image_data(image: MetadataImage) -> dict[str, Any]:
    """An image as plain data, where a version of many keys becomes its total. Complexity: O(objects + streams)."""
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
            {"range_index": owned.range_index, "start": owned.start, "end": owned.end, "node_id": owned.node_id}
            for owned in stream.ranges
        ],
        "stream_objects": [
            {**_object(stream_object.ref), "start": stream_object.start, "end": stream_object.end}
            for stream_object in stream.stream_objects
        ],
    }


def _node(node: NodeImage) -> dict[str, Any]:
    orders = node.order_ids.tolist()
    objects = [{**_object(ref), "order_id": order} for ref, order in zip(node.refs, orders, strict=True)]
    return {"node_id": node.node_id, "stream_set_objects": objects}


def _object(ref: ObjectRef) -> dict[str, int]:
    facts = {"size": ref.size_bytes, "index_size": ref.index_size_bytes, "attributes": ref.attributes}
    return {"object_id": ref.object_id} | {name: value for name, value in facts.items() if value != UNKNOWN}
