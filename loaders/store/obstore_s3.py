"""S3 through obstore, a client in Rust: the same store as `s3`, with a quarter of the CPU time of a GET.

Reads and writes of objects go through obstore. Other operations go through boto3, with the same settings: listings
(obstore's prefixes are whole path segments), deletes (obstore does not report the failed key), multipart uploads
(obstore does not number or copy parts), and keys that obstore would change (`/a`, `a/`, `a//b`, `a/./b`, control
characters). The extra `obstore` installs obstore.

These settings and parts of AWS's configuration chain are used: endpoint, region, path style, profile, credentials (of
boto3's session, read again every 20 seconds), unsigned requests, attempts,
timeouts. Not used: the other S3 sections of the config files (dualstack, FIPS, acceleration, checksums, custom
certificate bundles, proxies of the profile), and redirects to a bucket's true region: set the region. `connections`
bounds the idle connections, not the open ones. An interrupted answer is resumed where it was interrupted.

In a process that was forked after obstore was used, all requests go through boto3 (`clouds`). If a program uses
obstore apart from Accel before it forks, choose boto3.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from loaders.errors import CredentialsExpired, CredentialsMissing, RangeInvalid, RequestRefused
from loaders.lifetime import PerProcess
from loaders.store.base import (
    ALWAYS,
    LIST_PAGE_KEYS_MAX,
    CreateOnly,
    Fetched,
    IfMatch,
    PagedListing,
    bare_etag,
    check_range,
    check_strong,
    check_tail,
    metadata_of,
)
from loaders.store.clouds import client_options, fetch, in_own_process, is_plain, obstore_errors
from loaders.store.s3 import S3Store, s3_errors
from loaders.store.settings import S3Settings

# `clouds` reports a missing obstore, so it is imported first.
# isort: split
import obstore
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.exceptions import NotModifiedError
from obstore.store import S3Store as RustStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from obstore import GetOptions, PutMode

    from loaders.store.base import Body, Condition, DeleteFailures, ListPage, MultipartUpload
    from loaders.store.s3 import S3Clients

Answer = TypeVar("Answer")

# To ask boto3's session again costs microseconds, and it may have renewed or replaced them.
CREDENTIALS_TTL = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class _RustStores:
    retrying: RustStore
    once: RustStore


@dataclass(slots=True, eq=False)
class _Connection:
    """The stores of one process, once they exist."""

    lock: Lock = field(default_factory=Lock)
    stores: _RustStores | None = None


class ObstoreStore(PagedListing):
    """A bucket. Safe for many threads: obstore works outside the interpreter's lock.

    Args:
        bucket: its name.
        settings: how to reach it.
    """

    can_copy_parts = True

    def __init__(self, bucket: str, settings: S3Settings | None = None) -> None:
        self.bucket = bucket
        self.settings = settings or S3Settings(client="obstore")
        self._plain = S3Store(bucket, self.settings)
        self._connection = PerProcess("a connection", _Connection)

    @contextmanager
    def _errors(self, operation: str, key: str, *, conditional: bool = False) -> Iterator[None]:
        with (
            s3_errors(operation, key, bucket=self.bucket, conditional=conditional),
            obstore_errors(operation, key, self.bucket, conditional=conditional),
        ):
            yield

    def __reduce__(self) -> tuple[type[ObstoreStore], tuple[str, S3Settings]]:
        return type(self), (self.bucket, self.settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bucket!r}, {self.settings!r})"

    def create_bucket(self) -> None:
        """Create the bucket unless this account has it already: for demos and tests."""
        self._plain.create_bucket()

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """See `ObjectStore.get`."""

        def send() -> Fetched:
            with self._errors("get", key):
                return self._fetch(key, {}, size_bytes_max)

        return _either(key, send, lambda: self._plain.get(key, size_bytes_max=size_bytes_max))

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        check_range(start, end)

        def send() -> Fetched:
            with self._errors("get_range", key):
                return self._fetch(key, {"range": (start, end)})

        return _either(key, send, lambda: self._plain.get_range(key, start, end))

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        check_tail(length)

        def send() -> Fetched:
            with self._errors("get_tail", key):
                return self._fetch(key, {"range": {"suffix": length}})

        try:
            return _either(key, send, lambda: self._plain.get_tail(key, length))
        except (RangeInvalid, RequestRefused):
            # In HTTP an empty object has no tail: a server refuses the range, or obstore refuses the answer.
            return self._plain.get_tail(key, length)

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """See `ObjectStore.get_if_changed`."""

        def send() -> Fetched | None:
            with self._errors("get_if_changed", key):
                try:
                    return self._fetch(key, {"if_none_match": f'"{etag}"'}, size_bytes_max)
                except NotModifiedError:
                    return None

        return _either(key, send, lambda: self._plain.get_if_changed(key, etag, size_bytes_max=size_bytes_max))

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """See `ObjectStore.put`."""
        check_strong(key, condition)
        mode, metadata = self._mode(condition), metadata_of(mark)

        def send() -> str:
            with self._errors("put", key, conditional=mode != "overwrite"):
                store = self._stores().retrying if mode == "overwrite" else self._stores().once
                answer = obstore.put(store, key, body, attributes=metadata, mode=mode, use_multipart=False)
                return bare_etag(answer["e_tag"] or "")

        return _either(key, send, lambda: self._plain.put(key, body, condition=condition, mark=mark))

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._plain.delete(key)

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """See `ObjectStore.delete_many`."""
        return self._plain.delete_many(keys)

    def list_page(
        self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_KEYS_MAX, token: str = ""
    ) -> ListPage:
        """See `ObjectStore.list_page`."""
        return self._plain.list_page(prefix, start_after, limit, token)

    def date_seconds(self, prefix: str | None = "") -> float | None:
        """See `DatedStore.date_seconds`; through boto3, as obstore does not return headers."""
        return self._plain.date_seconds(prefix)

    def start_multipart(self, key: str, *, mark: str | None = None) -> MultipartUpload:
        """See `ObjectStore.start_multipart`."""
        return self._plain.start_multipart(key, mark=mark)

    def abort_multipart(self, key: str, upload_id: str) -> None:
        """See `ObjectStore.abort_multipart`."""
        self._plain.abort_multipart(key, upload_id)

    def _fetch(self, key: str, options: GetOptions, size_bytes_max: int | None = None) -> Fetched:
        return fetch(self._stores().retrying, key, options, size_bytes_max)[0]

    def _mode(self, condition: Condition) -> PutMode:
        if isinstance(condition, CreateOnly):
            return "create"
        if isinstance(condition, IfMatch):
            return {"e_tag": self.settings.condition_etag(condition.etag, condition.quotes)}
        return "overwrite"

    def _stores(self) -> _RustStores:
        connection = self._connection()
        with connection.lock:
            if connection.stores is None:
                connection.stores = _connect(self.bucket, self.settings, self._plain.clients())
            return connection.stores


def _either(key: str, send: Callable[[], Answer], send_plainly: Callable[[], Answer]) -> Answer:
    """Send a request through obstore; through boto3 if obstore does not take the key, or credentials were refused.

    A refused request was not carried out; boto3 finds new credentials, which obstore then uses, too.
    """
    if not _takes(key):
        return send_plainly()
    try:
        return send()
    except CredentialsExpired:
        return send_plainly()


def _takes(key: str) -> bool:
    """Whether requests for a key go through obstore: it takes the key unchanged, and works in this process."""
    return is_plain(key) and in_own_process()


def _connect(bucket: str, settings: S3Settings, clients: S3Clients) -> _RustStores:
    # obstore reads the environment too, by other rules; so all that boto3 found is passed explicitly, and the endpoint
    # under the name that takes precedence over all others.
    endpoint, path_style = _endpoint(bucket, clients)
    options: dict[str, Any] = {
        "config": {
            "aws_endpoint_url_s3": endpoint,
            "region": clients.retrying.meta.region_name,
            "virtual_hosted_style_request": not path_style,
            "skip_signature": settings.no_sign_request,
        },
        "client_options": client_options(settings, allow_http=endpoint.startswith("http://")),
    }
    if not settings.no_sign_request:
        options["credential_provider"] = _credentials(bucket, clients)
    retrying = RustStore(bucket, retry_config={"max_retries": settings.attempts - 1}, **options)
    return _RustStores(retrying, RustStore(bucket, retry_config={"max_retries": 0}, **options))


def _endpoint(bucket: str, clients: S3Clients) -> tuple[str, bool]:
    url = clients.retrying.meta.endpoint_url.rstrip("/")
    # No certificate is valid for a host name of a bucket with dots; boto3 uses the path then as well.
    if clients.path_style or "." in bucket:
        return url, True
    parts = urlsplit(url)
    return f"{parts.scheme}://{bucket}.{parts.netloc}", False


def _credentials(bucket: str, clients: S3Clients) -> Boto3CredentialProvider:
    try:
        return Boto3CredentialProvider(clients.session, ttl=CREDENTIALS_TTL)
    except ValueError as error:
        raise CredentialsMissing("connect", bucket, "no credentials found in AWS's configuration chain") from error
