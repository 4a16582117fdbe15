"""Google Cloud Storage (`gs://`) and Azure Blob Storage (`az://`), through obstore.

    | operation            | Google                                    | Azure                          |
    |----------------------|-------------------------------------------|--------------------------------|
    | create-only          | x-goog-if-generation-match: 0             | If-None-Match: *               |
    | replace if unchanged | x-goog-if-generation-match: generation    | If-Match: ETag                 |
    | get_tail             | Range: bytes=-n                           | two requests: HEAD and a range |
    | listing              | one request for 1,000 keys                | one for 5,000                  |
    | delete_many          | one request a key, 10 at a time           | one for 256 keys               |
    | multipart            | in a temporary file until it is completed | the same                       |
    | its time             | two requests: an empty object is written, | the same                       |
    |                      | and a HEAD reads when                     |                                |

**Google's versions are generations**, and its ETags are hashes of the bytes. The version of an `ObjectStore` is the
ETag; obstore's condition takes the generation. So the store keeps the generations of the keys that were read or written
(up to 10,000 keys). If the generation of a key is not kept, a HEAD reads it; if the ETag has changed by then, the
condition does not hold. In both cases the write is conditional on one generation with the caller's ETag.

Valid keys are those that obstore does not change (`is_plain`): no empty part, no `.` and `..`, no unprintable
characters; on Azure, which converts backslashes to slashes, no backslashes. All keys of Accel are valid. Other keys are
refused. Azurite lists in the order of UTF-16, which differs only for characters above U+FFFF; keys of Accel are ASCII.

obstore finds the credentials: application default credentials and `GOOGLE_...`; `AZURE_...` (the account in
`AZURE_STORAGE_ACCOUNT_NAME`), managed identities, the Azure CLI. These fields of `StoreSettings` are used: endpoint,
unsigned requests, connections, attempts, time-outs. If a service refuses the credentials, they are read again for the
next request. A write with a condition is sent once, as in all stores.

**obstore.** Its threads belong to the process that first used it, and a forked process cannot start others:
`in_own_process` checks that. If a program uses obstore apart from Accel before it forks, this cannot be detected.

Errors of obstore have no fields for code and status, and their classes do not distinguish 409 from 412, or a bucket
from a key. So both are parsed from the message, and looked up in the table of `error_table`.

Google was tested with an emulation in the tests, and Azure with Azurite; neither with the service itself.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cachetools import LRUCache

from loaders.errors import (
    CredentialsExpired,
    CredentialsMissing,
    KeyMissing,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    StoreError,
    StoreUnavailable,
    WrongProcess,
)
from loaders.layout import CLOCK_KEY
from loaders.lifetime import PerProcess, ProcessLock
from loaders.store.base import (
    ALWAYS,
    LIST_PAGE_KEYS_MAX,
    STALE_ETAG,
    CreateOnly,
    DeleteFailure,
    Fetched,
    IfMatch,
    ListPage,
    ObjectInfo,
    PagedListing,
    bare_etag,
    check_listed,
    check_page_limit,
    check_range,
    check_size,
    check_strong,
    check_tail,
    delete_each,
    delete_in_batches,
    mark_in,
    metadata_of,
)
from loaders.store.error_table import (
    ForeignAnswerError,
    foreign_answer,
    kind_by_words,
    named_bucket,
    redact,
    store_error,
    store_error_of,
)
from loaders.store.names import check_name
from loaders.store.settings import StoreSettings, is_loopback
from loaders.store.spooled import SpooledUpload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from obstore import GetOptions, GetResult, PutMode
    from obstore.store import AzureConfig, GCSConfig
    from obstore.store import ObjectStore as RustStore

    from loaders.store.base import Body, Condition, DeleteFailures, MultipartUpload

try:
    import obstore
    from obstore.exceptions import BaseError, NotModifiedError
    from obstore.store import AzureStore, GCSStore
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "obstore is not installed: pip install 'accel-streams[obstore]', or choose boto3 for s3:// "
        f"(gs:// and az:// need obstore) ({error})",
        name=error.name,
    ) from error


# obstore bounds the time of a whole request, which large bodies would exceed; the read timeout detects silence.
WHOLE_REQUEST_TIMEOUT = timedelta(hours=1)

# The process that has obstore's threads: the first one to use it.
_used_in: dict[str, int] = {}

_STATUS = re.compile(r"non-2xx status code: (\d{3})[^:]*:? ?")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_MESSAGE = re.compile(r"<(Message|Region)>([^<]*)</")
# What obstore was told by the system or by TLS, which its first line does not contain.
_CAUSE = re.compile(r'(?:message|error): "([^"]+)"|error: (Invalid\w+)\((?:\s|Other\(|OtherError\()*(\w+)')
_UNWANTED_ANSWER = re.compile(r"non-partial response|non UTF-8|Requested \S+, got|redirect without LOCATION")
_NO_TOKEN = re.compile(r"performing token request|Account must be specified|No credentials")
NOT_FOUND = 404
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


def client_options(settings: StoreSettings, endpoint: str, ca_file: str | None) -> dict[str, Any]:
    """Options of obstore's client: time-outs, idle connections, TLS, and no proxy on the way to this machine."""
    options: dict[str, Any] = {}
    if is_loopback(endpoint):  # a proxy of its own keeps it from those of the environment
        options |= {"proxy_url": "http://localhost", "proxy_excludes": urlsplit(endpoint).hostname}
    if ca_file is not None:
        options |= {"root_certificate": Path(ca_file).read_bytes()}
    return options | {
        "allow_http": endpoint.startswith("http://"),
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
    is_page = answer.attributes.get("Content-Type", "").startswith("text/html") and mark is None
    lacking = "" if meta["e_tag"] else "an ETag"
    if (is_page or lacking) and (foreign := foreign_answer(200, body, lacking=lacking)) is not None:
        raise foreign
    start, end = answer.range
    if len(body) != end - start:
        raise ConnectionResetError(f"expected {end - start} bytes, found {len(body)}")
    return Fetched(body, bare_etag(meta["e_tag"] or ""), meta["size"], start, mark), meta["version"]


@contextmanager
def obstore_errors(operation: str, key: str, bucket: str, *, conditional: bool = False) -> Iterator[None]:
    """Convert errors of obstore to errors of stores, by the error table; the original is the cause."""
    try:
        yield
    except ForeignAnswerError as error:
        raise store_error_of(operation, key, error) from error
    except (BaseError, FileNotFoundError) as error:
        raise _store_error(operation, key, error, bucket, conditional=conditional) from error


def _store_error(operation: str, key: str, error: Exception, bucket: str, *, conditional: bool) -> StoreError:
    redact(error)
    words = str(error).partition("\n\nDebug source")[0]
    status, code = _STATUS.search(words), _CODE.search(words)
    if status is None or _NO_TOKEN.search(words):  # refused by a service of tokens, not by the store
        kind, advice = _kind_by_words(words, str(error), error)
        cause = _CAUSE.search(str(error))
        why = f" ({' '.join(filter(None, cause.groups()))})" if cause else ""
        return kind(operation, key, f"{words}{why}", advice)
    name, number, body = code[1] if code else "", int(status[1]), words[status.end() :].encode()
    lacking = "a body" if number == NOT_FOUND and not body and operation == "list" else ""  # of no key
    location = "another place" if 300 <= number < 400 and not name else ""
    if (foreign := foreign_answer(number, body, location, lacking)) is not None:
        return store_error_of(operation, key, foreign)
    message = " ".join(f"(region {each[2]})" if each[1] == "Region" else each[2] for each in _MESSAGE.finditer(words))
    detail = named_bucket(f"{words.partition(': <')[0]} {name} {message}".strip(), name, bucket)
    return store_error(operation, key, detail, code=name, status=number, conditional=conditional)


def _kind_by_words(words: str, all_words: str, error: Exception) -> tuple[type[StoreError], str]:
    if _NO_TOKEN.search(words):
        return CredentialsMissing, ""
    if _NO_RANGE.search(words):
        return RangeInvalid, ""
    if _UNWANTED_ANSWER.search(words):
        return RequestRefused, ""
    return kind_by_words(all_words, error)


GENERATIONS_KEPT_MAX = 10_000
STALE_GENERATION = "1"  # generations are microseconds since 1970
TAIL_ATTEMPTS_MAX = 3
UPLOAD_CHUNK_BYTES = 8 << 20
UPLOADS_AT_ONCE = 4

NO_COMPARE_AND_SET = (
    "this store cannot replace an object only if it is unchanged (compare-and-set): it can be read, but tables cannot "
    "be written to it"
)


@dataclass(frozen=True, slots=True)
class Cloud:
    """The differences of one kind of store from the others. Immutable; picklable if `connect` is a module's function.

    Args:
        scheme: of its URLs.
        connect: creates obstore's store: from a bucket, settings and the number of repetitions of a request.
        has_generations: whether a condition takes the generation instead of the ETag.
        takes_suffixes: whether the service answers a range that is counted from the end.
        lists_in_order: whether keys are listed in the order of their UTF-8 bytes.
        refused_characters: characters that no key may contain.
        url: of the service, where the settings name no endpoint.
    """

    scheme: str
    connect: Callable[[str, StoreSettings, int], RustStore]
    has_generations: bool = False
    takes_suffixes: bool = True
    lists_in_order: bool = True
    refused_characters: str = ""
    url: str = ""


def _connect_google(bucket: str, settings: StoreSettings, retries: int) -> RustStore:
    config: GCSConfig = {"base_url": settings.endpoint_url} if settings.endpoint_url else {}
    if settings.no_sign_request:
        config["skip_signature"] = True
    return GCSStore(bucket, config=config, **_options(settings, retries))


def _connect_azure(bucket: str, settings: StoreSettings, retries: int) -> RustStore:
    config: AzureConfig = {"endpoint": settings.endpoint_url} if settings.endpoint_url else {}
    if settings.no_sign_request:
        config["skip_signature"] = True
    return AzureStore(bucket, config=config, **_options(settings, retries))


def _options(settings: StoreSettings, retries: int) -> dict[str, Any]:
    return {
        "client_options": client_options(settings, settings.endpoint_url or "", settings.ca_file()),
        "retry_config": {"max_retries": retries},
    }


GOOGLE = Cloud("gs", _connect_google, has_generations=True, url="https://storage.googleapis.com")
AZURE = Cloud("az", _connect_azure, takes_suffixes=False, refused_characters="\\", url="https://blob.core.windows.net")
CLOUDS = {cloud.scheme: cloud for cloud in (GOOGLE, AZURE)}
"""The kinds of stores by the scheme of their URLs."""


@dataclass(slots=True, eq=False)
class _Connection:
    """The state of a store in one process: obstore's stores, once they exist, and key -> ETag and generation."""

    lock: ProcessLock = field(default_factory=ProcessLock)
    stores: tuple[RustStore, RustStore] | None = None
    generations: LRUCache[str, tuple[str, str]] = field(default_factory=lambda: LRUCache(GENERATIONS_KEPT_MAX))


class CloudStore(PagedListing):
    """A bucket of Google, or a container of Azure. Threads: any.

    A process that was forked after obstore was used cannot use it: WrongProcess. Start processes by "spawn" instead.

    Args:
        bucket: its name.
        cloud: the kind of the store.
        settings: how to reach it.
    """

    can_copy_parts = False

    def __init__(self, bucket: str, cloud: Cloud, settings: StoreSettings | None = None) -> None:
        self.bucket = bucket
        self.cloud = cloud
        self.settings = settings or StoreSettings()
        self._connection = PerProcess("a connection", _Connection)

    def __reduce__(self) -> tuple[type[CloudStore], tuple[str, Cloud, StoreSettings]]:
        return type(self), (self.bucket, self.cloud, self.settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}('{self.cloud.scheme}://{self.bucket}', {self.settings!r})"

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """See `ObjectStore.get`."""
        with self._errors("get", key):
            return self._fetch(key, {}, size_bytes_max)

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        check_range(start, end)
        with self._errors("get_range", key):
            return self._fetch(key, {"range": (start, end)})

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`. Two requests on Azure."""
        check_tail(length)
        if self.cloud.takes_suffixes:
            try:
                with self._errors("get_tail", key):
                    return self._fetch(key, {"range": {"suffix": length}})
            except (RangeInvalid, RequestRefused):
                pass  # in HTTP an empty object has no tail
        return self._tail_by_size(key, length)

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """See `ObjectStore.get_if_changed`."""
        with self._errors("get_if_changed", key):
            try:
                return self._fetch(key, {"if_none_match": f'"{etag}"'}, size_bytes_max)
            except NotModifiedError:
                return None

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """See `ObjectStore.put`. On Google a condition on a version whose generation is not kept costs a HEAD too.

        Raises:
            RequestRefused: also if the store cannot replace an object only if it is unchanged.
        """
        is_conditional, metadata = isinstance(condition, CreateOnly | IfMatch), metadata_of(mark)
        with self._errors("put", key, conditional=is_conditional):
            retrying, once = self._stores(key)
            store, mode = once if is_conditional else retrying, self._mode(key, condition)
            try:
                answer = obstore.put(store, key, body, attributes=metadata, mode=mode, use_multipart=False)
            except NotImplementedError as error:
                raise RequestRefused("put", key, f"{NO_COMPARE_AND_SET} ({_first_line(error)})") from error
        return self._noted(key, bare_etag(answer["e_tag"] or ""), answer["version"])

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        try:
            with self._errors("delete", key):
                obstore.delete(self._stores(key)[0], key)
        except KeyMissing:
            return

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """See `ObjectStore.delete_many`. If a request for several keys fails, its keys are deleted one by one."""
        return delete_in_batches(keys, self._delete_batch, self.delete)

    def list(self, prefix: str, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. One request for each page of the service, for any limit."""
        if limit is not None and limit < 0:
            raise ValueError(f"expected a limit of 0 or more, or None, found {limit}")
        return self._listed(prefix, start_after, limit)

    def list_page(
        self,
        prefix: str,
        start_after: str = "",
        limit: int = LIST_PAGE_KEYS_MAX,
        token: str = "",  # noqa: ARG002 - obstore follows them itself
    ) -> ListPage:
        """See `ObjectStore.list_page`. One more request if the page ends with a page of the service."""
        check_page_limit(limit)
        found = [*self._listed(prefix, start_after, limit + 1)]
        return ListPage(found[:limit], len(found) > limit)

    def date_seconds(self, prefix: str | None = "") -> float | None:
        """See `DatedStore.date_seconds`: when an empty object was last written. Two requests.

        obstore returns no headers. If another process writes the object, the time is still between both requests.
        """
        if prefix is None:
            return None
        key = prefix + CLOCK_KEY
        self.put(key, b"")
        with self._errors("date", key):
            return obstore.head(self._stores(key)[0], key)["last_modified"].timestamp()

    def start_multipart(self, key: str, *, mark: str | None = None) -> MultipartUpload:
        """See `ObjectStore.start_multipart`. A temporary file of this machine contains the parts until completion."""
        metadata = metadata_of(mark)
        with self._errors("start_multipart", key):
            self._stores(key)
        try:
            file = tempfile.TemporaryFile(prefix="accel-upload-")  # noqa: SIM115 - closed at the end of the upload
        except OSError as error:
            raise store_error("start_multipart", key, f"no temporary file for the parts (TMPDIR): {error}") from error
        return SpooledUpload(key, file, partial(self._send, key, metadata), self.get_range)

    def abort_multipart(self, key: str, upload_id: str) -> None:
        """See `ObjectStore.abort_multipart`: the store has no parts before the completion."""

    # Private methods

    @contextmanager
    def _errors(self, operation: str, key: str, *, conditional: bool = False) -> Iterator[None]:
        try:
            with obstore_errors(operation, key, self.bucket, conditional=conditional):
                yield
        except CredentialsExpired:
            self._connection().stores = None  # the next request reads files and variables again
            raise

    def _stores(self, key: str) -> tuple[RustStore, RustStore]:
        """Obstore's store that repeats requests, and the one that does not."""
        if not self._takes(key):
            refused = f", without {self.cloud.refused_characters}" if self.cloud.refused_characters else ""
            detail = f"expected a key of printable parts between single slashes{refused}, found {key!r}"
            raise store_error("connect", key, detail, status=400)
        return self._connected()

    def _takes(self, key: str) -> bool:
        return is_plain(key) and not any(character in key for character in self.cloud.refused_characters)

    def _connected(self) -> tuple[RustStore, RustStore]:
        if not in_own_process():
            raise WrongProcess(
                f"{self.cloud.scheme}://{self.bucket}: obstore was used before this process was forked, and cannot "
                'work in it: start processes by multiprocessing.get_context("spawn")'
            )
        connection = self._connection()
        if connection.stores is None:
            check_name(self.settings.endpoint_url or self.cloud.url)
        with connection.lock:
            if connection.stores is None:
                connect = partial(self.cloud.connect, self.bucket, self.settings)
                connection.stores = connect(self.settings.attempts - 1), connect(0)
            return connection.stores

    def _fetch(self, key: str, options: GetOptions, size_bytes_max: int | None = None) -> Fetched:
        try:
            fetched, version = fetch(self._stores(key)[0], key, options, size_bytes_max)
        except ConnectionResetError as error:
            raise StoreUnavailable("get", key, str(error)) from error
        self._noted(key, fetched.etag, version)
        return fetched

    def _tail_by_size(self, key: str, length: int) -> Fetched:
        for _ in range(TAIL_ATTEMPTS_MAX):
            with self._errors("get_tail", key):
                size = obstore.head(self._stores(key)[0], key)["size"]
                found = self._fetch(key, {"range": (max(0, size - length), size)} if size else {})
            if found.object_size_bytes == size:
                return found
        raise StoreUnavailable("get_tail", key, "the size of the object changed before each read")

    def _mode(self, key: str, condition: Condition) -> PutMode:
        if isinstance(condition, CreateOnly):
            return "create"
        if not isinstance(condition, IfMatch):
            return "overwrite"
        if self.cloud.has_generations:
            return {"version": self._generation(key, condition.etag)}
        check_strong(key, condition)
        return {"e_tag": self.settings.condition_etag(condition.etag, condition.quotes)}

    def _generation(self, key: str, etag: str) -> str:
        """The generation of the version of a key with this ETag."""
        if etag == STALE_ETAG:
            return STALE_GENERATION  # so that the server refuses it, and not this function
        connection = self._connection()
        with connection.lock:
            known = connection.generations.get(key)
        if known is not None and known[0] == etag:
            return known[1]
        meta = obstore.head(self._stores(key)[0], key)
        found, version = bare_etag(meta["e_tag"] or ""), meta["version"]
        if found != etag or version is None:
            raise PreconditionFailed("put", key, f"expected ETag {etag}, found {found} in generation {version}")
        self._noted(key, found, version)
        return version

    def _noted(self, key: str, etag: str, version: str | None) -> str:
        if self.cloud.has_generations and version is not None:
            connection = self._connection()
            with connection.lock:
                connection.generations[key] = etag, version
        return etag

    def _delete_batch(self, keys: Sequence[str]) -> Iterable[DeleteFailure]:
        wanted = [*dict.fromkeys(keys)]
        try:
            with self._errors("delete_many", wanted[0]):
                obstore.delete(self._stores(wanted[0])[0], [key for key in wanted if self._takes(key)])
        except StoreError:
            return delete_each(wanted, self.delete)  # obstore does not report the failed keys; a missing key fails all
        return delete_each([key for key in wanted if not self._takes(key)], self.delete)

    def _listed(self, prefix: str, start_after: str, limit: int | None) -> Iterator[ObjectInfo]:
        if limit == 0:
            return iter(())
        found = self._walked(prefix, start_after, limit)
        if self.cloud.lists_in_order:
            return found
        return iter(_sorted(found) if limit is None else nsmallest(limit, found, key=lambda info: info.key.encode()))

    def _walked(self, prefix: str, start_after: str, limit: int | None) -> Iterator[ObjectInfo]:
        # obstore's prefixes are whole parts of a key, and not every server applies its offset: both are checked here.
        folder, after = prefix.rpartition("/")[0], start_after.encode()
        beginning = prefix[:-1] if len(prefix) > len(folder) + 1 else ""
        offset = _plain_part(max(start_after, beginning, key=str.encode))
        is_bounded = limit is not None and self.cloud.lists_in_order
        chunk = min(limit, LIST_PAGE_KEYS_MAX) if is_bounded and limit else LIST_PAGE_KEYS_MAX
        with self._errors("list", prefix):
            retrying = self._connected()[0]
            pages = iter(obstore.list(retrying, folder or None, offset=offset or None, chunk_size=chunk))
        count, last, seen = 0, "", set[str]()
        while limit is None or not is_bounded or count < limit:
            with self._errors("list", prefix):
                page = next(pages, None)
            if page is None:
                return
            for meta in page:
                key = meta["path"]
                if not self.cloud.lists_in_order:  # each key once
                    last = key if key in seen else ""
                    seen.add(key)
                check_listed(f"{folder}/" if folder else "", last, key)
                last = key
                if not key.startswith(prefix) or key.encode() <= after:
                    continue
                count += 1
                if is_bounded and limit is not None and count > limit:
                    return
                yield ObjectInfo(key, meta["size"], bare_etag(meta["e_tag"] or ""), meta["last_modified"].timestamp())

    def _send(self, key: str, metadata: dict[str, str], chunks: Iterator[bytes], *_: object) -> str:
        with self._errors("complete", key):
            answer = obstore.put(
                self._stores(key)[0],
                key,
                chunks,
                attributes=metadata,
                use_multipart=True,
                chunk_size=UPLOAD_CHUNK_BYTES,
                max_concurrency=UPLOADS_AT_ONCE,
            )
        return self._noted(key, bare_etag(answer["e_tag"] or ""), answer["version"])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _plain_part(offset: str) -> str:
    """The longest beginning of a key that obstore does not change."""
    while offset and not is_plain(offset):
        offset = offset[:-1]
    return offset


def _sorted(found: Iterator[ObjectInfo]) -> list[ObjectInfo]:
    return sorted(found, key=lambda info: info.key.encode())
