"""Names of tables and keys, as one segment of an S3 key each.

    table "t/x", key "y"      accel/tables/t%2Fx/y
    table "t", key "x/y"      accel/tables/t/x%2Fy
    table "größe", key "a.b"  accel/tables/gr%C3%B6%C3%9Fe/a%2Eb

Every UTF-8 byte but the ASCII letters, the digits, "-", "_" and "~" becomes "%" and two upper-case hexadecimal digits.
What follows from that:

- two pairs of names never meet in one key, since an encoded name has no slash;
- "." and ".." do not come up, which clients and file systems bend into other paths (the dot is encoded like the rest);
- a prefix of a name is encoded to a prefix of the encoded name, so listing by prefix works on either;
- "!" never comes up, which leaves "!table" for the marker of the table itself.

A listing goes by encoded names: letters and digits in ASCII order among themselves, everything encoded before them.
Numbers in names sort only if they are padded with zeros.
"""

from __future__ import annotations

import re

from loaders.layout import KEY_SIZE_BYTES_MAX, TABLE_MARKER

_PLAIN = re.compile(r"[0-9A-Za-z_~-]+")
_ENCODED = re.compile(r"(?:[0-9A-Za-z_~-]|%[0-9A-F]{2})+")
_HEX = re.compile(r"%([0-9A-F]{2})")
_BYTES = tuple(chr(each) if _PLAIN.fullmatch(chr(each)) else f"%{each:02X}" for each in range(256))


def encode_name(name: str) -> str:
    """A name as one segment of a key. O(length).

    >>> encode_name("stream/42.a")
    'stream%2F42%2Ea'

    Raises:
        ValueError: an empty name, one with half a surrogate pair, or one of more than 1,024 encoded bytes.
    """
    if not name:
        raise ValueError("a name has at least one character, this one is empty")
    encoded = encode_prefix(name)
    if len(encoded) > KEY_SIZE_BYTES_MAX:
        raise ValueError(f"a name has at most {KEY_SIZE_BYTES_MAX} encoded bytes, this one {len(encoded)}")
    return encoded


def encode_prefix(prefix: str) -> str:
    """The beginning of a name as the beginning of a segment; may be empty. Otherwise as `encode_name`."""
    if _PLAIN.fullmatch(prefix):
        return prefix
    try:
        return "".join(map(_BYTES.__getitem__, prefix.encode()))
    except UnicodeEncodeError as error:
        raise ValueError(f"a name is text that has a UTF-8 form, found {prefix!r}: {error.reason}") from error


def decode_name(encoded: str) -> str:
    """The name that was encoded to this segment.

    >>> decode_name("stream%2F42%2Ea")
    'stream/42.a'

    Raises:
        ValueError: not what `encode_name` makes of any name.
    """
    if not _ENCODED.fullmatch(encoded):
        raise ValueError(f"expected an encoded name, found {encoded!r}")
    name = _HEX.sub(lambda found: chr(int(found[1], 16)), encoded).encode("latin-1").decode()
    if encode_prefix(name) != encoded:
        raise ValueError(f"expected the encoded form of {name!r}, found {encoded!r}")
    return name


def table_folder(prefix: str, table: str) -> str:
    """What all keys of a table begin with."""
    return f"{prefix}{encode_name(table)}/"


def marker_key(folder: str) -> str:
    """Where the marker of a table lies."""
    return checked_key(folder + TABLE_MARKER)


def value_key(folder: str, key: str) -> str:
    """Where the value of a key lies.

    Raises:
        ValueError: as for `encode_name`, or more than 1,024 bytes in all.
    """
    return checked_key(folder + encode_name(key))


def place_of(store_key: str, root: str) -> str:
    """What a value's checksum binds it to: its key without what all keys of the bucket's tables begin with.

    >>> place_of("accel/tables/owners/stream%2F7", "accel/tables/")
    'owners/stream%2F7'

    Raises:
        ValueError: a key that does not begin so.
    """
    if not store_key.startswith(root):
        raise ValueError(f"expected a key below {root!r}, found {store_key!r}")
    return store_key[len(root) :]


def checked_key(store_key: str) -> str:
    """The same key, if S3 would take it; else ValueError."""
    size_bytes = len(store_key.encode())
    if size_bytes > KEY_SIZE_BYTES_MAX:
        raise ValueError(f"a key has at most {KEY_SIZE_BYTES_MAX} bytes in all, this one {size_bytes}: {store_key!r}")
    return store_key
