"""All keys of the catalog: the table of each key, its name there, and the form of its value.

    nodes               directory                      NodeDirectory
    nodes               format                         FormatRecord    never written again
    node-lists          <node>                         NodeList
    node-list-history   <node>-<sequence>              ListVersion     never written again
    stream-buckets      <shard>                        StreamShard
    node-checkpoints    <node>                         Checkpoint
    counters            object-ids                     the next id
    import-progress     (only the table's marker)                      during an import
    job-runs            <kind>                         JobRuns         see `job_runs`

Numbers are padded with zeros, because listings are in the order of their characters. The contents of each record:
docs/reference/catalog-records.md, "Keys of the catalog".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from accel.catalog.records import (
    CHECKPOINT,
    LIST_VERSION,
    NODE_DIRECTORY,
    NODE_LIST,
    OBJECT_ID_COUNTER,
    STREAM_SHARD,
    Checkpoint,
    ListVersion,
    NodeDirectory,
    NodeList,
    StreamShard,
)
from accel.errors import CatalogDamaged, CatalogWentBack
from loaders.tables import FormatRecord, Tables
from loaders.tables.conditional_write import VALUE_SIZE_BYTES_MAX
from loaders.tables.format_record import FORMAT_FORM
from loaders.tables.records import Codec
from loaders.tables.typed_key import TypedKey, VersionId, always, never
from loaders.versions import Versioned

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
"""The table of a running import; without an import the table does not exist."""

JOB_RUNS = "job-runs"
"""The table of past runs of jobs; it is made with the first one, so that old catalogs get it, too."""

_NODE_DIGITS, _SEQUENCE_DIGITS, _SHARD_DIGITS = 10, 20, 5


def node_key(node_id: int) -> str:
    """The key of a node's record.

    >>> node_key(4)
    '0000000004'

    Raises:
        ValueError: a number of more than 10 digits.
    """
    return _padded("a node id", node_id, _NODE_DIGITS)


def parse_node_key(key: str) -> int | None:
    """The node of a key; None for a key that `node_key` does not make."""
    return _parsed(key, _NODE_DIGITS)


def list_version_key(node_id: int, sequence: int) -> str:
    """The key of the version of a node's list with a sequence number.

    >>> list_version_key(4, 17)
    '0000000004-00000000000000000017'

    Raises:
        ValueError: a number with more digits than the key has.
    """
    return f"{list_version_prefix(node_id)}{_padded('a sequence', sequence, _SEQUENCE_DIGITS)}"


def list_version_prefix(node_id: int) -> str:
    """The common prefix of the keys of all versions of a node's list."""
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
        ValueError: a number of more than 5 digits.
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
"""The maximum size of the directory: a node takes up to 9 bytes."""

COUNTER_SIZE_BYTES_MAX = 1 << 12
"""The maximum size of a counter, which is one number."""


def require(value: T | None, where: str) -> T:
    """The value of a key that is made once and never deleted.

    Raises:
        CatalogDamaged: the key has no value.
    """
    if value is None:
        raise CatalogDamaged(f"expected a value in {where}, found none: it was deleted")
    return value


def must_read(key: TypedKey[T]) -> Versioned[T]:
    """Read a key that is made once and never deleted.

    Raises:
        CatalogDamaged: the key has no value.
    """
    return require(key.read(), key.where)


class CatalogKeys:
    """The catalog's keys. A key with an older version than was read before raises CatalogWentBack. Threads: any.

    Attributes:
        went_back: the last such error of any key; it ends the sessions that were opened before.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.went_back: CatalogWentBack | None = None

    def directory(self) -> TypedKey[NodeDirectory]:
        """The nodes that have a list."""
        return self._key(NODES, DIRECTORY_KEY, NODE_DIRECTORY, size_bytes_max=DIRECTORY_SIZE_BYTES_MAX)

    def format_copy(self) -> TypedKey[FormatRecord]:
        """A copy of the format record, written when the making of the catalog began."""
        return self._key(NODES, FORMAT_COPY_KEY, FORMAT_FORM, is_final=always)

    def node_list(self, node_id: int) -> TypedKey[NodeList]:
        """The list of a node's objects."""
        return self._key(NODE_LISTS, node_key(node_id), NODE_LIST)

    def list_version(self, node_id: int, sequence: int) -> TypedKey[ListVersion]:
        """The version of a node's list with a sequence number."""
        return self._key(NODE_LIST_HISTORY, list_version_key(node_id, sequence), LIST_VERSION, is_final=always)

    def shard(self, number: int) -> TypedKey[StreamShard]:
        """A stream shard: the streams whose ids hash to its number."""
        return self._key(STREAM_SHARDS, shard_key(number), STREAM_SHARD)

    def checkpoint(self, node_id: int) -> TypedKey[Checkpoint]:
        """The ends of a node's streams some commits ago."""
        return self._key(NODE_CHECKPOINTS, node_key(node_id), CHECKPOINT)

    def object_ids(self) -> TypedKey[int]:
        """The counter of object ids: the next id that is not allocated."""
        return self._key(COUNTERS, OBJECT_IDS_KEY, OBJECT_ID_COUNTER, size_bytes_max=COUNTER_SIZE_BYTES_MAX)

    def is_importing(self) -> bool:
        """Whether an import is running or was interrupted. One request."""
        return self.tables.table_exists(IMPORT_PROGRESS)

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
        return TypedKey(table, key, codec, is_final=is_final, went_back=self.note_back)

    def note_back(self, where: str, seen: VersionId, found: VersionId | None) -> CatalogWentBack:
        """The error of a key that went back; it ends all sessions of this catalog in this process."""
        self.went_back = CatalogWentBack(where, seen, found)
        return self.went_back
