"""How keys are named as files: pure functions between the parts of a key and the names in a folder.

A key is divided at its slashes; each part but the last is a folder, the last one is a file. So `accel/format` is the
file `accel/format%object`. Bytes of a part's UTF-8 form other than ASCII letters, digits and `-_.~!@,=+:;` are written
as `%XX`. What is no part of a key has a `%` that no two hexadecimal digits follow:

    | name            | is                                                                                          |
    |-----------------|---------------------------------------------------------------------------------------------|
    | `...%object`    | an object; the key `a` and the folder of `a/b` therefore never have the same name           |
    | `%empty`        | the folder of an empty part, as in `a//b`                                                   |
    | `...%more`      | a folder with what follows the first 64 bytes of a long part: a file name has at most 255   |
    | `%new`          | at the top of a store: the folder of what is being written                                  |
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes

OBJECT = "%object"
EMPTY = "%empty"
MORE = "%more"
NEW = "%new"

_CHUNK_BYTES = 64
_PLAIN = "!@,=+:;"
_QUOTED = re.compile(r"(?:[A-Za-z0-9_.~!@,=+:;-]|%[0-9A-F]{2})*")


@dataclass(frozen=True, slots=True)
class Entry:
    """What one name in a folder stands for.

    Attributes:
        text: of an object, the end of its key; of a folder, what its keys go on with. In UTF-8.
        name: in the file system.
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
    """What a name stands for; None if it is none of a store's: each text has one name, which leads to it again.

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
    """What a name with this suffix says; None for one that is not made of any text, as there is another one for it."""
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
    return text if text.strip(".") else text.replace(".", "%2E")  # "." and ".." are no names of one's own
