"""Converts keys to names of files and back. Pure functions.

A key is divided at its slashes; each part but the last is a folder, the last one is a file. So `accel/format` is the
file `accel/format%object`. Bytes of a part's UTF-8 form other than ASCII letters, digits and `-_.~!@,=+:;` are written
as `%XX`. Names with another meaning have a `%` that is not followed by two hexadecimal digits:

    | name            | meaning                                                                                     |
    |-----------------|---------------------------------------------------------------------------------------------|
    | `...%object`    | an object; the key `a` and the folder of `a/b` therefore never have the same name           |
    | `%empty`        | the folder of an empty part, as in `a//b`                                                   |
    | `...%more`      | a folder for the rest of a part after its first 64 bytes: a file name has at most 255 bytes |
    | `%new`          | at the top of a store: the folder of files that are being written                           |
    | `%store`        | likewise: the file with the store's id                                                      |
    | `%reserve`      | likewise: a file that is deleted when a collector needs space                               |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

OBJECT = "%object"
EMPTY = "%empty"
MORE = "%more"
NEW = "%new"
STORE = "%store"
RESERVE = "%reserve"

_CHUNK_BYTES = 64
_PLAIN = "!@,=+:;"
_QUOTED = re.compile(r"(?:[A-Za-z0-9_.~!@,=+:;-]|%[0-9A-F]{2})*")


@dataclass(frozen=True, slots=True)
class Entry:
    """The meaning of one name in a folder.

    Attributes:
        text: the end of an object's key, or the next bytes of the keys in a folder. In UTF-8.
        name: the name in the file system.
        is_object: whether it is an object.
    """

    text: bytes
    name: str
    is_object: bool


def place_of(key: str) -> tuple[list[str], str]:
    """The folders of a key, from the top, and the name of its file.

    >>> place_of("accel/format")
    (['accel'], 'format%object')
    >>> place_of("a//..")
    (['a', '%empty'], '%2E%2E%object')
    """
    *parts, last = key.encode().split(b"/")
    folders = [name for part in parts for name in _folders(part)]
    chunks, rest = _chunks(last)
    return [*folders, *chunks], _quoted(rest) + OBJECT


def entry_of(name: str, *, is_folder: bool) -> Entry | None:
    """The meaning of a name; None if no key of a store has it. Each text has exactly one name.

    >>> entry_of("a%20b%object", is_folder=False)
    Entry(text=b'a b', name='a%20b%object', is_object=True)
    >>> entry_of("a", is_folder=True), entry_of("a", is_folder=False)
    (Entry(text=b'a/', name='a', is_object=False), None)
    """
    if not is_folder:
        end = _text(name, OBJECT)
        return Entry(end, name, is_object=True) if end is not None and len(end) < _CHUNK_BYTES else None
    if name == EMPTY:
        return Entry(b"/", name, is_object=False)
    chunk = _text(name, MORE)
    if chunk is not None:
        return Entry(chunk, name, is_object=False) if len(chunk) == _CHUNK_BYTES else None
    part = _text(name, "")
    return Entry(part + b"/", name, is_object=False) if part and len(part) < _CHUNK_BYTES else None


def _text(name: str, suffix: str) -> bytes | None:
    """The text of a name with this suffix; None if no text is converted to this name."""
    quoted = name.removesuffix(suffix)
    if not name.endswith(suffix) or not _QUOTED.fullmatch(quoted):
        return None
    text = unquote_to_bytes(quoted)
    return text if _quoted(text) == quoted else None


def _folders(part: bytes) -> list[str]:
    chunks, rest = _chunks(part)
    return [*chunks, _quoted(rest) or EMPTY]


def _chunks(part: bytes) -> tuple[list[str], bytes]:
    chunks = []
    while len(part) >= _CHUNK_BYTES:
        chunks.append(_quoted(part[:_CHUNK_BYTES]) + MORE)
        part = part[_CHUNK_BYTES:]
    return chunks, part


def _quoted(part: bytes) -> str:
    text = quote(part, safe=_PLAIN)
    return text if text.strip(".") else text.replace(".", "%2E")  # "." and ".." are reserved names
