"""Where objects lie in a bucket: the one module that knows how their keys are made.

    <prefix>/<reversed hex id>/<namespace>/<id>         a2000000/_kafka_rZdE0DjZSrqy96PXrMUZVw/42

The hexadecimal digits of the id (at least eight of them) are reversed, so that ids given out one after another differ
in the first characters of the key: a store that divides its keys by prefix then spreads the load. The namespace keeps
the objects of two clusters in one bucket apart; the prefix is ours, for buckets that hold other things besides.

What is not an object lies below ``<prefix>/accel/``; the prefix itself is put in front by whoever opens the store
(`PrefixedStore`), so that the constants below are whole keys:

    accel/format                      what the bucket is: the format record
    accel/tables/<table>/<key>        versioned tables; table and key percent-encoded (loaders/tables/names.py)
    accel/tables/<table>/!table       a table's marker: without it there is no table
    accel/probe/<nonce>               what finds out how the endpoint treats conditional writes; gone at once
    accel/journal/...                 what the collector deleted, and why
"""

from __future__ import annotations

from dataclasses import dataclass

FORMAT_KEY = "accel/format"
"""Where the format record lies."""

TABLES_PREFIX = "accel/tables/"
"""What the keys of all tables begin with."""

TABLE_MARKER = "!table"
"""Last segment of a marker's key. No encoded name has a "!", and it sorts before all of them."""

PROBE_PREFIX = "accel/probe/"
"""Where conditional writes are tried out."""

JOURNAL_PREFIX = "accel/journal/"
"""Where it is written down what was deleted."""

KEY_SIZE_BYTES_MAX = 1024
"""Longest key of S3, in UTF-8 bytes."""

_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """Object ids to keys and back. Threads: immutable.

    Args:
        prefix: what all keys begin with, without a slash at either end; empty for none.
        namespace: the cluster's name in the bucket, one path element; brokers use ``_kafka_`` and the cluster id.

    Raises:
        ValueError: a prefix or namespace that would make ambiguous keys.
    """

    prefix: str = ""
    namespace: str = "DEFAULT"

    def __post_init__(self) -> None:
        if self.prefix.startswith("/") or self.prefix.endswith("/"):
            raise ValueError(f"expected a prefix without a slash at either end, found {self.prefix!r}")
        if not self.namespace or "/" in self.namespace:
            raise ValueError(f"expected a namespace of one path element, found {self.namespace!r}")

    def object_key(self, object_id: int) -> str:
        """The key of an object.

        >>> ObjectLayout(namespace="_kafka_rZdE0DjZSrqy96PXrMUZVw").object_key(42)
        'a2000000/_kafka_rZdE0DjZSrqy96PXrMUZVw/42'

        Raises:
            ValueError: an id below 0 or beyond 64 bits.

        Source: docs/formats.md, "Keys".
        """
        if not 0 <= object_id <= _INT64_MAX:
            raise ValueError(f"expected an object id of 0 to {_INT64_MAX}, found {object_id}")
        return f"{self._start}{_scattered(object_id)}/{self.namespace}/{object_id}"

    def parse_object_key(self, key: str) -> int | None:
        """The id of the object at this key, or None for a key that ``object_key`` does not make.

        >>> ObjectLayout().parse_object_key("a2000000/DEFAULT/42")
        42
        """
        digits = key.rpartition("/")[2]
        if len(digits) > 19 or not (digits.isascii() and digits.isdigit()) or int(digits) > _INT64_MAX:
            return None
        object_id = int(digits)
        return object_id if self.object_key(object_id) == key else None

    @property
    def _start(self) -> str:
        return f"{self.prefix}/" if self.prefix else ""


def _scattered(object_id: int) -> str:
    return f"{object_id:08x}"[::-1]
