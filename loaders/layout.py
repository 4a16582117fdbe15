"""The keys of all objects in a bucket; no other module builds or parses keys.

    <prefix>/<reversed hex id>/<namespace>/<id>         a2000000/_kafka_rZdE0DjZSrqy96PXrMUZVw/42

The hexadecimal digits of the id (at least eight of them) are reversed, so that consecutive ids differ in the first
characters of the key: a store that divides its keys by prefix then spreads the load. The namespace separates the
objects of two clusters in one bucket. The prefix is an addition of Accel, for buckets that also hold other data.

All other keys are below ``<prefix>/accel/``; `PrefixedStore` adds the prefix when the store is opened, so the constants
below are whole keys:

    accel/format                      the format record: the settings of the bucket
    accel/tables/<table>/<key>        versioned tables; table and key percent-encoded, as below
    accel/tables/<table>/!table       a table's marker: without it there is no table
    accel/probe/<nonce>               the probe of the endpoint's conditional writes; deleted at once
    accel/probe/clock                 an empty object; when it was last written is the time of a store that reports none
    accel/uploads/<object id>/<upload id>   an unfinished multipart upload of an object; 20 digits, and percent-encoded
    accel/journal/...                 the collector's deletions and their reasons
    accel/time/<stream id>/<record>   part of a segment's time index; number of its first record as 20 decimal digits
    accel/transactions/<stream's unique id>/<transaction id>     data of a transaction that is to be committed
    accel/transactions/node-<n>/<session number>          transactions that the node merges now; number as 20 digits
    accel/hints/<kind>/node-<n>/root                      the root of a node's filter packs or index snapshots
    accel/hints/<kind>/node-<n>/<generation>/<name>       files that roots name; the generation as 20 decimal digits
    accel/hints/<kind>/node-<n>/<generation>/root         a copy of the root of that generation

Hints (docs/reference/hints.md) may be deleted at any time; their kinds are "packs" and "snapshots".

The names of a table and of a key in it become one segment of an S3 key each:

    table "t/x", key "y"      accel/tables/t%2Fx/y
    table "t", key "x/y"      accel/tables/t/x%2Fy
    table "größe", key "a.b"  accel/tables/gr%C3%B6%C3%9Fe/a%2Eb

Every UTF-8 byte but the ASCII letters, the digits, "-", "_" and "~" becomes "%" and two upper-case hexadecimal digits.
Consequences:

- two pairs of names never have the same key, since an encoded name has no slash;
- no segment is "." or "..", which clients and file systems resolve to other paths (the dot is encoded too);
- a prefix of a name is encoded to a prefix of the encoded name, so listing by prefix works on either;
- no encoded name contains "!", so "!table" is free for the marker of the table itself.

A listing is in the order of encoded names: letters and digits in ASCII order, and every encoded byte before them.
Numbers in names sort only if they are padded with zeros.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from loaders.errors import NameRefused, shortened

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

ACCEL_PREFIX = "accel/"
"""The beginning of all keys but the keys of objects."""

FORMAT_KEY = "accel/format"
"""The key of the format record."""

TABLES_PREFIX = "accel/tables/"
"""The beginning of the keys of all tables."""

TABLE_MARKER = "!table"
"""Last segment of a marker's key. No encoded name has a "!", and it sorts before all of them."""

PROBE_PREFIX = "accel/probe/"
"""The beginning of the keys for probes of conditional writes."""

CONDITIONS_KEY = "accel/probe/conditions"
"""The key on which each process tries whether conditions of writes are obeyed; its bytes never change."""

CLOCK_KEY = "accel/probe/clock"
"""The key that is written to find out the time of a store that reports only those of objects."""

JOURNAL_PREFIX = "accel/journal/"
"""The beginning of the keys of the collector's journal."""

UPLOADS_PREFIX = "accel/uploads/"
"""The beginning of the keys of unfinished multipart uploads."""

TIMES_PREFIX = "accel/time/"
"""The beginning of the keys of all parts of time indexes."""

TRANSACTIONS_PREFIX = "accel/transactions/"
"""The beginning of the keys of transactions' data."""

HINTS_PREFIX = "accel/hints/"
"""The beginning of the keys of all hints."""

HINT_ROOT_NAME = "root"
"""Last segment of the keys of roots."""

KEY_SIZE_BYTES_MAX = 1024
"""Longest key of S3, in UTF-8 bytes."""

NAMESPACE_SIZE_BYTES_MAX = 255
"""Longest namespace, in UTF-8 bytes: with it an object's key has 292, which leaves 732 for a prefix."""

_INT64_MAX = 2**63 - 1
_PLAIN = re.compile(r"[0-9A-Za-z_~-]+")
_ENCODED = re.compile(r"(?:[0-9A-Za-z_~-]|%[0-9A-F]{2})+")
_HEX = re.compile(r"%([0-9A-F]{2})")
_BYTES = tuple(chr(byte) if _PLAIN.fullmatch(chr(byte)) else f"%{byte:02X}" for byte in range(256))
_HINT_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")
_DIGITS = 20
_NONCE = re.compile(r"[0-9a-f]{32}")
_BEGINNING = re.compile(
    r"accel/(?:[0-9A-Za-z_~%!-]+/)*(?:[0-9A-Za-z_~%!-][0-9A-Za-z_~%!.-]*)?|[0-9a-f]{8,16}/.*", re.DOTALL
)


def may_be_ours(beginning: str) -> bool:
    """Whether a key that this module builds, of any namespace, may begin with this text, which has a slash.

    >>> may_be_ours("accel/tables/"), may_be_ours("a2000000/DEFAULT/"), may_be_ours("lost+found/")
    (True, True, False)
    """
    return _BEGINNING.fullmatch(beginning) is not None


def check_namespace(namespace: str) -> None:
    """Check that a name can be part of an object's key and is printable.

    Raises:
        NameRefused: it is not a path element: empty, with a slash, "." or ".."; it has more than 255 UTF-8 bytes, or
            characters that are not printable: controls, marks of direction, halves of surrogate pairs.
    """
    if namespace in {"", ".", ".."} or "/" in namespace:
        raise NameRefused(f"expected a namespace of one path element, found {shortened(namespace)!r}")
    if not namespace.isprintable():
        raise NameRefused(f"expected a namespace of printable characters, found {shortened(namespace)!a}")
    size_bytes = len(namespace.encode())
    if size_bytes > NAMESPACE_SIZE_BYTES_MAX:
        found = f"{size_bytes}: {shortened(namespace)!r}"
        raise NameRefused(f"expected a namespace of at most {NAMESPACE_SIZE_BYTES_MAX} bytes, found {found}")


def encode_name(name: str) -> str:
    """A name as one segment of a key. O(length).

    >>> encode_name("stream/42.a")
    'stream%2F42%2Ea'

    Raises:
        ValueError: an empty name, one with half a surrogate pair, or one of more than 1,024 encoded bytes.
    """
    if not name:
        raise ValueError("expected a name of at least one character, found an empty name")
    encoded = encode_prefix(name)
    if len(encoded) > KEY_SIZE_BYTES_MAX:
        raise ValueError(f"expected a name of at most {KEY_SIZE_BYTES_MAX} encoded bytes, found {len(encoded)}")
    return encoded


def encode_prefix(prefix: str) -> str:
    """The beginning of a name as the beginning of a segment; may be empty. Otherwise as `encode_name`."""
    if _PLAIN.fullmatch(prefix):
        return prefix
    try:
        return "".join(map(_BYTES.__getitem__, prefix.encode()))
    except UnicodeEncodeError as error:
        raise ValueError(f"expected a name that has a UTF-8 form, found {prefix!r}: {error.reason}") from error


def decode_name(encoded: str) -> str:
    """The name that was encoded to this segment.

    >>> decode_name("stream%2F42%2Ea")
    'stream/42.a'

    Raises:
        ValueError: no name is encoded to this segment.
    """
    if len(encoded) > KEY_SIZE_BYTES_MAX or not _ENCODED.fullmatch(encoded):
        raise ValueError(f"expected an encoded name, found {shortened(encoded)!r}")
    name = _HEX.sub(lambda escape: chr(int(escape[1], 16)), encoded).encode("latin-1").decode()
    if encode_prefix(name) != encoded:
        raise ValueError(f"expected the encoded form of {name!r}, found {encoded!r}")
    return name


def table_folder(prefix: str, table: str) -> str:
    """The beginning of all keys of a table."""
    return f"{prefix}{encode_name(table)}/"


def marker_key(folder: str) -> str:
    """The key of a table's marker."""
    return checked_key(folder + TABLE_MARKER)


def value_key(folder: str, key: str) -> str:
    """The store key of a table key's value.

    Raises:
        ValueError: as for `encode_name`, or more than 1,024 bytes in all.
    """
    return checked_key(folder + encode_name(key))


def place_of(store_key: str, root: str) -> str:
    """The place that a value's checksum contains: its key without the beginning that all tables' keys share.

    >>> place_of("accel/tables/owners/stream%2F7", "accel/tables/")
    'owners/stream%2F7'

    Raises:
        ValueError: the key does not begin with `root`.
    """
    if not store_key.startswith(root):
        raise ValueError(f"expected a key below {root!r}, found {store_key!r}")
    return store_key[len(root) :]


def checked_key(store_key: str) -> str:
    """The same key, if it is not too long for S3; otherwise ValueError."""
    size_bytes = len(store_key.encode())
    if size_bytes > KEY_SIZE_BYTES_MAX:
        raise ValueError(f"expected a key of at most {KEY_SIZE_BYTES_MAX} bytes, found {size_bytes}: {store_key!r}")
    return store_key


def upload_key(object_id: int, upload_id: str) -> str:
    """The key that exists from before the first part of a multipart upload of an object until its end.

    >>> upload_key(42, "2~a.b")
    'accel/uploads/00000000000000000042/2~a%2Eb'

    Raises:
        ValueError: an id below 0 or beyond 64 bits, or as for `encode_name`.
    """
    _check_number("an object id", object_id)
    return checked_key(f"{UPLOADS_PREFIX}{object_id:0{_DIGITS}d}/{encode_name(upload_id)}")


def parse_upload_key(key: str) -> tuple[int, str] | None:
    """Object and upload of this key, or None for a key that ``upload_key`` never returns.

    >>> parse_upload_key("accel/uploads/00000000000000000042/2~a%2Eb")
    (42, '2~a.b')
    """
    digits, _, encoded = key.removeprefix(UPLOADS_PREFIX).partition("/")
    object_id = _number(digits)
    try:
        upload_id = decode_name(encoded)
    except ValueError:
        return None
    if object_id is None or upload_key(object_id, upload_id) != key:
        return None
    return object_id, upload_id


class HintKind(StrEnum):
    """The kind of a hint; the text is a segment of its keys."""

    PACKS = "packs"
    SNAPSHOTS = "snapshots"


class HintFile(NamedTuple):
    """The parts of a key of a node's hints."""

    generation: int
    name: str


def hint_node_prefix(kind: HintKind, node_id: int) -> str:
    """The beginning of the keys of a node's hints of one kind.

    >>> hint_node_prefix(HintKind.PACKS, 7)
    'accel/hints/packs/node-7/'

    Raises:
        ValueError: a node id below 0 or beyond 64 bits.
    """
    _check_number("a node id", node_id)
    return f"{HINTS_PREFIX}{kind}/node-{node_id}/"


def hint_root_key(kind: HintKind, node_id: int) -> str:
    """The key of the root of a node's hints.

    >>> hint_root_key(HintKind.SNAPSHOTS, 7)
    'accel/hints/snapshots/node-7/root'
    """
    return hint_node_prefix(kind, node_id) + HINT_ROOT_NAME


def hint_file_key(kind: HintKind, node_id: int, generation: int, name: str) -> str:
    """The key of an object of one generation of a node's hints.

    >>> hint_file_key(HintKind.PACKS, 7, 1700000000000, "filters-0-00000")
    'accel/hints/packs/node-7/00000001700000000000/filters-0-00000'

    Raises:
        ValueError: a generation below 0 or beyond 64 bits; a name of other than 1 to 128 lower-case letters, digits,
            "-" and ".".
    """
    _check_number("a generation", generation)
    if not _HINT_NAME.fullmatch(name):
        raise ValueError(f"expected a name of lower-case letters, digits, '-' and '.', found {name!r}")
    return f"{hint_node_prefix(kind, node_id)}{generation:0{_DIGITS}d}/{name}"


def parse_hint_file_key(kind: HintKind, node_id: int, key: str) -> HintFile | None:
    """Generation and name of the object at this key, or None for a key that ``hint_file_key`` never returns.

    >>> parse_hint_file_key(HintKind.PACKS, 7, "accel/hints/packs/node-7/00000000000000000012/root")
    HintFile(generation=12, name='root')
    """
    digits, _, name = key.removeprefix(hint_node_prefix(kind, node_id)).partition("/")
    generation = _number(digits)
    if generation is None or not _HINT_NAME.fullmatch(name):
        return None
    return HintFile(generation, name) if hint_file_key(kind, node_id, generation, name) == key else None


def time_part_prefix(stream_id: int) -> str:
    """The beginning of the keys of a segment's time index; the stream holds the segment's data.

    >>> time_part_prefix(7)
    'accel/time/7/'

    Raises:
        ValueError: a stream id below 0 or beyond 64 bits.
    """
    _check_number("a stream id", stream_id)
    return f"{TIMES_PREFIX}{stream_id}/"


def time_part_key(stream_id: int, first_record: int) -> str:
    """The key of the part of a time index that begins with a record; keys are in the order of the records.

    >>> time_part_key(7, 65536)
    'accel/time/7/00000000000000065536'

    Raises:
        ValueError: a stream id or a number below 0 or beyond 64 bits.

    Source: docs/reference/events.md, "The time index of a segment".
    """
    _check_number("a record number", first_record)
    return f"{time_part_prefix(stream_id)}{first_record:0{_DIGITS}d}"


def parse_time_part_key(stream_id: int, key: str) -> int | None:
    """The first record of the part at this key, or None for a key that ``time_part_key`` never returns.

    >>> parse_time_part_key(7, "accel/time/7/00000000000000065536")
    65536
    """
    first_record = _number(key.removeprefix(time_part_prefix(stream_id)))
    return first_record if first_record is not None and time_part_key(stream_id, first_record) == key else None


def number_table_key(stream_id: int, end: int) -> str:
    """The key of a segment's table of writers' numbers at an offset; beside the parts of its time index.

    >>> number_table_key(7, 100)
    'accel/time/7/writers-00000000000000000100'

    Raises:
        ValueError: a stream id or an offset below 0 or beyond 64 bits.

    Source: docs/reference/events.md, "Numbers of writers".
    """
    _check_number("an offset", end)
    return f"{number_tables_prefix(stream_id)}{end:0{_DIGITS}d}"


def parse_number_table_key(stream_id: int, key: str) -> int | None:
    """The offset of the table at this key, or None for a key that ``number_table_key`` never returns.

    >>> parse_number_table_key(7, "accel/time/7/writers-00000000000000000100")
    100
    """
    end = _number(key.removeprefix(number_tables_prefix(stream_id)))
    return end if end is not None and number_table_key(stream_id, end) == key else None


def number_tables_prefix(stream_id: int) -> str:
    """The beginning of the keys of a segment's tables of numbers; keys are in the order of the offsets.

    >>> number_tables_prefix(7)
    'accel/time/7/writers-'

    Raises:
        ValueError: a stream id below 0 or beyond 64 bits.
    """
    return f"{time_part_prefix(stream_id)}writers-"


def transaction_key(stream_unique_id: UUID, transaction_id: UUID) -> str:
    """The key of the data of a transaction that is to be committed.

    >>> from uuid import UUID
    >>> transaction_key(UUID(int=7), UUID(int=1))
    'accel/transactions/00000000-0000-0000-0000-000000000007/00000000-0000-0000-0000-000000000001'

    Source: docs/reference/events.md, "Data of a transaction".
    """
    return f"{TRANSACTIONS_PREFIX}{stream_unique_id}/{transaction_id}"


MERGING_PREFIX = f"{TRANSACTIONS_PREFIX}node-"
"""The beginning of the keys of the transactions that sessions of all nodes merge, or merged."""


def merging_prefix(node_id: int) -> str:
    """The beginning of the keys of the transactions that sessions of a node merge, or merged.

    >>> merging_prefix(4)
    'accel/transactions/node-4/'

    Raises:
        ValueError: a node id below 0 or beyond 64 bits.
    """
    _check_number("a node id", node_id)
    return f"{MERGING_PREFIX}{node_id}/"


def merging_key(node_id: int, epoch: int, number: int) -> str:
    """The key of the record of transactions that a session of a node merges at once.

    A session numbers its merges, and has one such record at a time. No two merges have one key: a request about an
    earlier one that arrives late changes nothing of a later one.

    >>> merging_key(4, 2, 7)
    'accel/transactions/node-4/00000000000000000002-7'

    Raises:
        ValueError: a node id, an epoch or a number below 0 or beyond 64 bits.

    Source: docs/reference/events.md, "Data of a transaction".
    """
    _check_number("an epoch", epoch)
    _check_number("the number of a merge", number)
    return f"{merging_prefix(node_id)}{epoch:0{_DIGITS}d}-{number}"


NO_CATALOG = "0" * 32
"""In the marks of objects that no catalog of ours lists: such a mark proves only which write it was."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Who wrote the object at a key: the metadata `accelmark` of an object, as text. Threads: immutable.

    A key alone proves nothing, as another system may use the same namespace. A mark proves that this catalog wrote the
    object, and its nonce which write it was: a lost reply is looked up by it.

    >>> str(Mark("0" * 32, 42, "f" * 32))
    '00000000000000000000000000000000.42.ffffffffffffffffffffffffffffffff'

    Args:
        catalog_id: of the format record; 32 hexadecimal digits.
        object_id: of the object. A mark at the key of another object was copied, and proves nothing.
        nonce: of the write; 32 hexadecimal digits, never used before.

    Source: docs/reference/objects.md, "Marks".
    """

    catalog_id: str
    object_id: int
    nonce: str

    @staticmethod
    def of(text: str | None) -> Mark | None:
        """The mark of this text; None for a text that no mark has.

        >>> Mark.of("0" * 32 + ".42." + "f" * 32).object_id
        42
        """
        words = (text or "").split(".")
        object_id = _number(words[1]) if len(words) == 3 else None
        if object_id is None or not (_NONCE.fullmatch(words[0]) and _NONCE.fullmatch(words[2])):
            return None
        mark = Mark(words[0], object_id, words[2])
        return mark if str(mark) == text else None

    def __str__(self) -> str:
        return f"{self.catalog_id}.{self.object_id}.{self.nonce}"


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """Object ids to keys and back. Threads: immutable.

    Args:
        prefix: the beginning of all keys, without a slash at either end; empty for none.
        namespace: the cluster's name in the bucket, one path element; brokers use ``_kafka_`` and the cluster id.
        catalog_id: of the catalog whose objects these are; empty = none, or unknown: then no object is proven to be of
            it. It changes no key, and layouts that differ in it are equal.

    Raises:
        ValueError: a prefix that would make ambiguous keys.
        NameRefused: as `check_namespace`.
    """

    prefix: str = ""
    namespace: str = "DEFAULT"
    catalog_id: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if self.prefix.startswith("/") or self.prefix.endswith("/"):
            raise ValueError(f"expected a prefix without a slash at either end, found {self.prefix!r}")
        check_namespace(self.namespace)

    def object_key(self, object_id: int) -> str:
        """The key of an object.

        >>> ObjectLayout(namespace="_kafka_rZdE0DjZSrqy96PXrMUZVw").object_key(42)
        'a2000000/_kafka_rZdE0DjZSrqy96PXrMUZVw/42'

        Raises:
            ValueError: an id below 0 or beyond 64 bits.

        Source: docs/reference/objects.md, "Keys".
        """
        _check_number("an object id", object_id)
        return f"{self._start}{_scattered(object_id)}/{self.namespace}/{object_id}"

    def mark(self, object_id: int, nonce: Callable[[], bytes]) -> str:
        """The text of a new mark of an object. `nonce` returns 16 random bytes."""
        return str(Mark(self.catalog_id or NO_CATALOG, object_id, nonce().hex()))

    def is_ours(self, object_id: int, mark: str | None) -> bool:
        """Whether an object with this mark, at the key of this id, was written by the catalog of this layout."""
        found = Mark.of(mark)
        return found is not None and (found.catalog_id, found.object_id) == (self.catalog_id, object_id)

    def is_immutable(self, key: str) -> bool:
        """Whether the content of a key never changes: an object, or a file of a hint (their roots are replaced)."""
        if key.startswith(HINTS_PREFIX):
            return not key.endswith(f"/{HINT_ROOT_NAME}")
        return self.parse_object_key(key) is not None

    def parse_object_key(self, key: str) -> int | None:
        """The id of the object at this key, or None for a key that ``object_key`` never returns.

        >>> ObjectLayout().parse_object_key("a2000000/DEFAULT/42")
        42
        """
        object_id = _number(key.rpartition("/")[2])
        return object_id if object_id is not None and self.object_key(object_id) == key else None

    @property
    def _start(self) -> str:
        return f"{self.prefix}/" if self.prefix else ""


def _scattered(object_id: int) -> str:
    return f"{object_id:08x}"[::-1]


def _check_number(what: str, number: int) -> None:
    if not 0 <= number <= _INT64_MAX:
        raise ValueError(f"expected {what} of 0 to {_INT64_MAX}, found {number}")


def _number(digits: str) -> int | None:
    """The number of these digits, with any number of leading zeros; None if invalid, or larger than 64 bits."""
    if not 0 < len(digits) <= _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    number = int(digits)
    return number if number <= _INT64_MAX else None
