"""All decoders of the project by name, and the public functions that look like decoders and are none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from tests.fuzzing import objects, stored, texts
from tests.fuzzing.judging import Decoder

_OPENS = "opens a connection, a handle or many objects; what it reads goes through the decoders"
_FIELD = "a field of a record: tried within the records that have such fields"
_OWN_ARRAYS = "of arrays that this process made: no bytes from outside"

_REASONS: Mapping[str, tuple[str, ...]] = {
    _OPENS: (
        "accel.catalog.catalog:ObjectCatalog.open",
        "accel.catalog.catalog:ObjectCatalog.open_node",
        "accel.catalog.parts:CatalogParts.open_all",
        "accel.catalog.parts:open_bounded",
        "accel.catalog.parts:open_each",
        "accel.catalog.session:open_session",
        "accel.catalog.shard_writes:open_ranges",
        "accel.catalog.whole_catalog:BulkScan.open_objects",
        "accel.catalog.writer:NodeWriter.open_streams",
        "accel.cli.options:ReaderChoice.open",
        "accel.cli.options:StoreChoice.open",
        "accel.cli.standard_streams:open_standard_streams",
        "accel.cli.stream.options:ScopeChoice.open",
        "accel.cli.stream.options:StreamChoice.open",
        "accel.hint_building.building:open_patiently",
        "accel.history.store.stream_store:StreamStore.open",
        "accel.server.sidecar:Sidecar.open",
        "accel.streams.connection:Connection.open_group_reader",
        "accel.streams.connection:Connection.open_reader",
        "accel.streams.shared.segments:Forwarding.open",
        "accel.streams.groups:ReaderGroup.open",
        "accel.streams.segments_host:Lanes.open",
        "accel.streams.segments_host:ObjectSegments.open_segments",
        "accel.streams.time_index:SegmentTimeIndex.open",
        "accel.lookup.engine:Engine.open",
        "loaders.merge.transfer:open_sources",
        "loaders.object_index:ObjectIndexLoader.open",
        "loaders.object_index:open_fetched",
        "loaders.store.memory:MemoryStore.open_uploads",
        "spark_jobs.event_source:StreamSpec.open",
        "spark_jobs.survey:SparkBulkScan.open_objects",
        "spark_jobs.tasks:StoreSpec.open",
    ),
    _FIELD: (
        "accel.history.records:MapColumns.unpack",
        "accel.history.records:SegmentColumns.unpack",
        "accel.history.records:SetColumns.unpack",
        "loaders.tables.records:Bounded.unpack",
        "loaders.tables.records:ByName.unpack",
        "loaders.tables.records:Codec.decode",
        "loaders.tables.records:Columns.unpack",
        "loaders.tables.records:Converted.unpack",
        "loaders.tables.records:Listed.unpack",
        "loaders.tables.records:Nested.unpack",
        "loaders.tables.records:OneField.unpack",
        "loaders.tables.records:Optional.unpack",
        "loaders.tables.records:Packing.unpack",
    ),
    _OWN_ARRAYS: (
        "bloom.filter_matrix:TileBank.open",
        "loaders.hints.entry_columns:EntryColumns.from_mapping",
        "range_index.node_index:NodeRanges.entry_of",
        "range_index.object_ranges:ObjectRanges.from_columns",
        "range_index.range_chunk:RangeChunk.entry_of",
        "range_index.runs:unpack",
    ),
    "what `decode_stored` and the form say of a key's bytes": (
        "loaders.tables.conditional_write:ConditionalWriter.decode",
    ),
    "finds an image's bytes; they are those of `load_image_file`": ("accel.image_source:read_image",),
    "click's own reading of a command line": (
        "accel.cli.groups:CommandGroup.parse_args",
        "accel.cli.main:AccelGroup.parse_args",
        "accel.cli.options:StoreCommand.parse_args",
    ),
}

NO_DECODERS: Mapping[str, str] = {name: reason for reason, names in _REASONS.items() for name in names}
"""Public functions that are called like decoders, and why they are none."""


_FAMILIES = {
    "objects and data of streams": objects.decoders,
    "records of tables": lambda: [each for each in stored.decoders() if each.name.startswith("record-")],
    "envelopes, columns, hints, requests of owners": lambda: [
        each for each in stored.decoders() if not each.name.startswith("record-")
    ],
    "texts: JSON, HTTP, command line, names": texts.decoders,
}


@cache
def _families() -> Mapping[str, str]:
    return {each.name: family for family, made in _FAMILIES.items() for each in made()}


def family_of(name: str) -> str:
    """What kind of thing a decoder reads, for people."""
    return _families()[name]


@cache
def decoders() -> Mapping[str, Decoder]:
    """Every decoder by its name."""
    found = [each for made in _FAMILIES.values() for each in made()]
    by_name = {each.name: each for each in found}
    if len(by_name) < len(found):
        raise ValueError("expected each name once")
    return by_name
