"""Every key of the catalog: its table, its name there, and the form of its value.

    nodes               directory                      NodeDirectory
    nodes               format                         FormatRecord    never written again
    node-lists          <node>                         NodeList
    node-list-history   <node>-<sequence>              ListVersion     never written again
    stream-buckets      <shard>                        StreamShard
    node-checkpoints    <node>                         Checkpoint
    counters            object-ids                     the next id
    import-progress     run                            ImportRun       only while an import is under way
    import-progress     batch-<hash of what it covers> ReadBatch       likewise; never written again

Numbers are padded with zeros, because listings come in the order of their characters. What stands in each record:
docs/reference/catalog-records.md, "Keys of the catalog".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from accel.catalog.records import (
    CHECKPOINT,
    IMPORT_BATCH,
    IMPORT_RUN,
    LIST_VERSION,
    NODE_DIRECTORY,
    NODE_LIST,
    OBJECT_ID_COUNTER,
    STREAM_SHARD,
    Checkpoint,
    ImportRun,
    ListVersion,
    NodeDirectory,
    NodeList,
    ReadBatch,
    StreamShard,
)
from accel.errors import CatalogDamaged, CatalogWentBack
from loaders.tables import FormatRecord, Tables
from loaders.tables.envelope import VALUE_SIZE_BYTES_MAX
from loaders.tables.format_record import FORMAT_FORM
from loaders.tables.records import Codec
from loaders.tables.typed_key import TypedKey, always, never

NODES = "nodes"
NODE_LISTS = "node-lists"
NODE_LIST_HISTORY = "node-list-history"
STREAM_SHARDS = "stream-buckets"
NODE_CHECKPOINTS = "node-checkpoints"
COUNTERS = "counters"
TABLES = (NODES, NODE_LISTS, NODE_LIST_HISTORY, STREAM_SHARDS, NODE_CHECKPOINTS, COUNTERS)
"""All tables of the catalog, in the order in which `init` makes them."""

DIRECTORY_KEY = "directory"
FORMAT_COPY_KEY = "format"
OBJECT_IDS_KEY = "object-ids"

IMPORT_PROGRESS = "import-progress"
"""The table of an import that is under way; there is none otherwise."""

IMPORT_RUN_KEY = "run"

_NODE_DIGITS, _SEQUENCE_DIGITS, _SHARD_DIGITS = 10, 20, 5


def node_key(node_id: int) -> str:
    """The key of what belongs to a node.

    >>> node_key(4)
    '0000000004'

    Raises:
        ValueError: a number that 10 digits cannot say.
    """
    return _padded("a node id", node_id, _NODE_DIGITS)


def parse_node_key(key: str) -> int | None:
    """The node of a key; None for a key that `node_key` does not make."""
    return _parsed(key, _NODE_DIGITS)


def list_version_key(node_id: int, sequence: int) -> str:
    """The key of a node's list as it stood at one of its sequence numbers.

    >>> list_version_key(4, 17)
    '0000000004-00000000000000000017'

    Raises:
        ValueError: a number that its digits cannot say.
    """
    return f"{list_version_prefix(node_id)}{_padded('a sequence', sequence, _SEQUENCE_DIGITS)}"


def list_version_prefix(node_id: int) -> str:
    """What the keys of all versions of a node's list begin with."""
    return f"{node_key(node_id)}-"


def parse_list_version_key(key: str) -> tuple[int, int] | None:
    """Node and sequence of a key; None for a key that `list_version_key` does not make."""
    node_text, _, sequence_text = key.partition("-")
    node_id, sequence = _parsed(node_text, _NODE_DIGITS), _parsed(sequence_text, _SEQUENCE_DIGITS)
    return None if node_id is None or sequence is None else (node_id, sequence)


def shard_key(shard: int) -> str:
    """The key of a stream shard.

    >>> shard_key(31)
    '00031'

    Raises:
        ValueError: a number that 5 digits cannot say.
    """
    return _padded("a stream shard", shard, _SHARD_DIGITS)


def _padded(what: str, number: int, digits: int) -> str:
    if not 0 <= number < 10**digits:
        raise ValueError(f"expected {what} of 0 to {10**digits - 1}, found {number}")
    return f"{number:0{digits}d}"


def _parsed(text: str, digits: int) -> int | None:
    return int(text) if len(text) == digits and text.isascii() and text.isdigit() else None


T = TypeVar("T")

DIRECTORY_SIZE_BYTES_MAX = 1 << 20
"""Of the directory: a node takes up to 9 bytes."""

COUNTER_SIZE_BYTES_MAX = 1 << 12
"""Of a counter, which is one number."""


def require(value: T | None, where: str) -> T:
    """The value of a key that is made once and never deleted.

    Raises:
        CatalogDamaged: nothing stands there.
    """
    if value is None:
        raise CatalogDamaged(f"expected a value in {where}, found none: it was deleted")
    return value


class CatalogKeys:
    """The catalog's keys. A key that holds less than was seen there raises CatalogWentBack. Threads: any."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def directory(self) -> TypedKey[NodeDirectory]:
        """Which nodes have a list."""
        return self._key(NODES, DIRECTORY_KEY, NODE_DIRECTORY, size_bytes_max=DIRECTORY_SIZE_BYTES_MAX)

    def format_copy(self) -> TypedKey[FormatRecord]:
        """The choices with which the catalog was begun, beside the format record itself."""
        return self._key(NODES, FORMAT_COPY_KEY, FORMAT_FORM, is_final=always)

    def node_list(self, node_id: int) -> TypedKey[NodeList]:
        """A node's objects."""
        return self._key(NODE_LISTS, node_key(node_id), NODE_LIST)

    def list_version(self, node_id: int, sequence: int) -> TypedKey[ListVersion]:
        """A node's list as it stood at one of its sequence numbers."""
        return self._key(NODE_LIST_HISTORY, list_version_key(node_id, sequence), LIST_VERSION, is_final=always)

    def shard(self, number: int) -> TypedKey[StreamShard]:
        """A part of the streams."""
        return self._key(STREAM_SHARDS, shard_key(number), STREAM_SHARD)

    def checkpoint(self, node_id: int) -> TypedKey[Checkpoint]:
        """Where a node's streams ended some commits ago."""
        return self._key(NODE_CHECKPOINTS, node_key(node_id), CHECKPOINT)

    def object_ids(self) -> TypedKey[int]:
        """The next object id that nobody has."""
        return self._key(COUNTERS, OBJECT_IDS_KEY, OBJECT_ID_COUNTER, size_bytes_max=COUNTER_SIZE_BYTES_MAX)

    def import_run(self) -> TypedKey[ImportRun]:
        """What an import that is under way has done to the counter of ids."""
        return self._key(IMPORT_PROGRESS, IMPORT_RUN_KEY, IMPORT_RUN)

    def import_batch(self, key: str) -> TypedKey[ReadBatch]:
        """Indexes that an import has read."""
        return self._key(IMPORT_PROGRESS, key, IMPORT_BATCH, is_final=always)

    def _key(
        self,
        table_name: str,
        key: str,
        codec: Codec[T],
        *,
        is_final: Callable[[T], bool] = never,
        size_bytes_max: int = VALUE_SIZE_BYTES_MAX,
    ) -> TypedKey[T]:
        table = self.tables.table(table_name, value_size_bytes_max=size_bytes_max)
        return TypedKey(table, key, codec, is_final=is_final, went_back=CatalogWentBack)
