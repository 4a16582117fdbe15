"""Where the catalog's records lie: names of tables, and keys in them.

    nodes               directory                      NodeDirectory
    nodes               format                         FormatRecord    never written again
    node-lists          <node>                         NodeList
    node-list-history   <node>-<sequence>              ListVersion     never written again
    stream-buckets      <bucket>                       StreamBucket
    node-checkpoints    <node>                         Checkpoint
    counters            object-ids                     ObjectIdCounter
    import-progress     run                            ImportRun       only while an import is under way
    import-progress     batch-<hash of what it covers> ReadBatch       likewise; never written again

Numbers are padded with zeros, because listings come in the order of their characters. What stands in each record:
docs/formats.md, "Records".
"""

from __future__ import annotations

NODES = "nodes"
NODE_LISTS = "node-lists"
NODE_LIST_HISTORY = "node-list-history"
STREAM_BUCKETS = "stream-buckets"
NODE_CHECKPOINTS = "node-checkpoints"
COUNTERS = "counters"
TABLES = (NODES, NODE_LISTS, NODE_LIST_HISTORY, STREAM_BUCKETS, NODE_CHECKPOINTS, COUNTERS)
"""All tables of the catalog, in the order in which `init` makes them."""

DIRECTORY_KEY = "directory"
FORMAT_COPY_KEY = "format"
OBJECT_IDS_KEY = "object-ids"

IMPORT_PROGRESS = "import-progress"
"""The table of an import that is under way; there is none otherwise."""

IMPORT_RUN_KEY = "run"

_NODE_DIGITS, _SEQUENCE_DIGITS, _BUCKET_DIGITS = 10, 20, 5


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


def bucket_key(bucket: int) -> str:
    """The key of a bucket of streams.

    >>> bucket_key(31)
    '00031'

    Raises:
        ValueError: a number that 5 digits cannot say.
    """
    return _padded("a bucket", bucket, _BUCKET_DIGITS)


def _padded(what: str, number: int, digits: int) -> str:
    if not 0 <= number < 10**digits:
        raise ValueError(f"expected {what} of 0 to {10**digits - 1}, found {number}")
    return f"{number:0{digits}d}"


def _parsed(text: str, digits: int) -> int | None:
    return int(text) if len(text) == digits and text.isascii() and text.isdigit() else None
