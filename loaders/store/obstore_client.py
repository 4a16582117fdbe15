"""Functions that all stores with obstore share: its import, keys, time-outs, errors and answers.

obstore's threads belong to the process that first used it, and a forked process cannot start others:
`in_own_process` checks that. If a program uses obstore apart from Accel before it forks, this cannot be detected.

Errors of obstore have no fields for code and status, and their classes do not distinguish 409 from 412, or a bucket
from a key. So both are parsed from the message, and looked up in the table of `error_table`.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from loaders.errors import CredentialsMissing, EndpointUnreachable, RangeInvalid, RequestRefused
from loaders.store.base import Fetched, bare_etag, check_size, mark_in
from loaders.store.error_table import kind_of_exception, named_bucket, redact, store_error

try:
    import obstore
    from obstore.exceptions import BaseError
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "obstore is not installed: pip install 'accel-streams[obstore]', or choose boto3 for s3:// "
        f"(gs:// and az:// need obstore) ({error})",
        name=error.name,
    ) from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore import GetOptions, GetResult
    from obstore.store import ObjectStore as RustStore

    from loaders.errors import StoreError
    from loaders.store.settings import StoreSettings

# obstore bounds the time of a whole request, which large bodies would exceed; the read timeout detects silence.
WHOLE_REQUEST_TIMEOUT = timedelta(hours=1)

# The process that has obstore's threads: the first one to use it.
_used_in: dict[str, int] = {}

_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_UNWANTED_ANSWER = re.compile(r"non-partial response|non UTF-8|Requested \S+, got|redirect without LOCATION")
_NO_CONNECTION = re.compile(r"tcp connect error|dns error|Connect,")
_NO_TOKEN = re.compile(r"performing token request|Account must be specified|No credentials")
_NO_RANGE = re.compile(r"Wanted range starting at|Requested range was invalid")


def in_own_process() -> bool:
    """Whether obstore works in this process: none of the processes that it was forked from has used obstore."""
    process_id = os.getpid()
    return _used_in.setdefault("process", process_id) == process_id


def is_plain(key: str) -> bool:
    """Whether obstore takes a key unchanged; it normalizes other keys, or refuses them.

    >>> is_plain("a/b c+%"), is_plain("/a"), is_plain("a/../b")
    (True, False, False)
    """
    return key.isprintable() and not any(part in {"", ".", ".."} for part in key.split("/"))


def client_options(settings: StoreSettings, *, allow_http: bool) -> dict[str, Any]:
    """Options of obstore's client: time-outs, idle connections, and whether HTTP without encryption is allowed."""
    return {
        "allow_http": allow_http,
        "connect_timeout": timedelta(seconds=settings.connect_timeout_seconds),
        "read_timeout": timedelta(seconds=settings.read_timeout_seconds),
        "timeout": WHOLE_REQUEST_TIMEOUT,
        "pool_max_idle_per_host": str(settings.connections),
    }


def fetch(
    store: RustStore, key: str, options: GetOptions, size_bytes_max: int | None = None
) -> tuple[Fetched, str | None]:
    """The complete answer of a GET, and its version if the store has versions. One request.

    Raises:
        CorruptObject: the object is longer than the limit; its body is not read.
        ConnectionResetError: the body is shorter than its header says.
        BaseError, FileNotFoundError: from obstore.
    """
    answer: GetResult = obstore.get(store, key, options=options)
    meta, mark = answer.meta, mark_in(answer.attributes)
    check_size(key, meta["size"], size_bytes_max)
    body = bytes(answer.bytes())
    start, end = answer.range
    if len(body) != end - start:
        raise ConnectionResetError(f"expected {end - start} bytes, found {len(body)}")
    return Fetched(body, bare_etag(meta["e_tag"] or ""), meta["size"], start, mark), meta["version"]


@contextmanager
def obstore_errors(operation: str, key: str, bucket: str, *, conditional: bool = False) -> Iterator[None]:
    """Convert errors of obstore to errors of stores, by the error table; the original is the cause."""
    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        raise _store_error(operation, key, error, bucket, conditional=conditional) from error


def _store_error(operation: str, key: str, error: Exception, bucket: str, *, conditional: bool) -> StoreError:
    redact(error)
    words = str(error).partition("\n\nDebug source")[0]
    status, code = _STATUS.search(words), _CODE.search(words)
    if status is None or _NO_TOKEN.search(words):  # refused by a service of tokens, not by the store
        return _kind_by_words(words, str(error), error)(operation, key, words)
    name = code[1] if code else ""
    detail = named_bucket(f"{words.partition(': <')[0]} {name}".strip(), name, bucket)
    return store_error(operation, key, detail, code=name, status=int(status[1]), conditional=conditional)


def _kind_by_words(words: str, all_words: str, error: Exception) -> type[StoreError]:
    if _NO_TOKEN.search(words):
        return CredentialsMissing
    if _NO_RANGE.search(words):
        return RangeInvalid
    if _UNWANTED_ANSWER.search(words):
        return RequestRefused
    return EndpointUnreachable if _NO_CONNECTION.search(all_words) else kind_of_exception(error)
