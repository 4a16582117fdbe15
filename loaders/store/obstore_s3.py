"""S3 through obstore, a client in Rust: the same store as `s3`, with a quarter of the CPU time of a GET.

Reads and writes of objects go through obstore. All else is that of `S3Store`, through boto3: listings
(obstore's prefixes are whole path segments), deletes (obstore does not report the failed key), multipart uploads
(obstore does not number or copy parts), and keys that obstore would change (`/a`, `a/`, `a//b`, `a/./b`, control
characters). The extra `obstore` installs obstore.

These settings and parts of AWS's configuration chain are used: endpoint, region, path style, profile, credentials (of
boto3's session, read again every 20 seconds), unsigned requests, attempts,
timeouts. Not used: the other S3 sections of the config files (dualstack, FIPS, acceleration, checksums, custom
proxies of the profile), and redirects to a bucket's true region: set the region. `connections`
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
    CreateOnly,
    Fetched,
    IfMatch,
    bare_etag,
    check_range,
    check_strong,
    check_tail,
    metadata_of,
)
from loaders.store.clouds import client_options, fetch, in_own_process, is_plain, obstore_errors
from loaders.store.s3 import S3Store
from loaders.store.settings import StoreSettings

# `clouds` reports a missing obstore, so it is imported first.
# isort: split
import obstore
from obstore.auth.boto3 import Boto3CredentialProvider
from obstore.exceptions import NotModifiedError
from obstore.store import S3Store as RustStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore import GetOptions, PutMode

    from loaders.store.base import Body, Condition
    from loaders.store.s3 import S3Clients

Answer = TypeVar("Answer")

# To ask boto3's session again costs microseconds, and it may have renewed or replaced them.
CREDENTIALS_TTL = timedelta(seconds=20)


@dataclass(slots=True, eq=False)
class _RustConnection:
    """Obstore's stores of one process, once they exist: the one that repeats requests, and the one that does not."""

    lock: Lock = field(default_factory=Lock)
    stores: tuple[RustStore, RustStore] | None = None


class ObstoreStore(S3Store):
    """A bucket. Safe for many threads: obstore works outside the interpreter's lock.

    Args:
        bucket: its name.
        settings: how to reach it.
    """

    def __init__(self, bucket: str, settings: StoreSettings | None = None) -> None:
        super().__init__(bucket, settings or StoreSettings(client="obstore"))
        self._rust_connection = PerProcess("a connection", _RustConnection)

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """See `ObjectStore.get`."""
        plain = super().get

        def send() -> Fetched:
            with self._rust_errors("get", key):
                return self._rust_fetch(key, {}, size_bytes_max)

        return _either(key, send, lambda: plain(key, size_bytes_max=size_bytes_max))

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        plain = super().get_range
        check_range(start, end)

        def send() -> Fetched:
            with self._rust_errors("get_range", key):
                return self._rust_fetch(key, {"range": (start, end)})

        return _either(key, send, lambda: plain(key, start, end))

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        plain = super().get_tail
        check_tail(length)

        def send() -> Fetched:
            with self._rust_errors("get_tail", key):
                return self._rust_fetch(key, {"range": {"suffix": length}})

        try:
            return _either(key, send, lambda: plain(key, length))
        except (RangeInvalid, RequestRefused):
            # In HTTP an empty object has no tail: a server refuses the range, or obstore refuses the answer.
            return plain(key, length)

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """See `ObjectStore.get_if_changed`."""
        plain = super().get_if_changed

        def send() -> Fetched | None:
            with self._rust_errors("get_if_changed", key):
                try:
                    return self._rust_fetch(key, {"if_none_match": f'"{etag}"'}, size_bytes_max)
                except NotModifiedError:
                    return None

        return _either(key, send, lambda: plain(key, etag, size_bytes_max=size_bytes_max))

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """See `ObjectStore.put`."""
        plain = super().put
        check_strong(key, condition)
        mode, metadata = self._mode(condition), metadata_of(mark)

        def send() -> str:
            with self._rust_errors("put", key, conditional=mode != "overwrite"):
                retrying, once = self._stores()
                store = retrying if mode == "overwrite" else once
                answer = obstore.put(store, key, body, attributes=metadata, mode=mode, use_multipart=False)
                return bare_etag(answer["e_tag"] or "")

        return _either(key, send, lambda: plain(key, body, condition=condition, mark=mark))

    def _rust_fetch(self, key: str, options: GetOptions, size_bytes_max: int | None = None) -> Fetched:
        return fetch(self._stores()[0], key, options, size_bytes_max)[0]

    def _mode(self, condition: Condition) -> PutMode:
        if isinstance(condition, CreateOnly):
            return "create"
        if isinstance(condition, IfMatch):
            return {"e_tag": self.settings.condition_etag(condition.etag, condition.quotes)}
        return "overwrite"

    def _stores(self) -> tuple[RustStore, RustStore]:
        connection = self._rust_connection()
        with connection.lock:
            if connection.stores is None:
                connection.stores = _connect(self.bucket, self.settings, self.clients())
            return connection.stores

    @contextmanager
    def _rust_errors(self, operation: str, key: str, *, conditional: bool = False) -> Iterator[None]:
        with (
            self._errors(operation, key, conditional=conditional),
            obstore_errors(operation, key, self.bucket, conditional=conditional),
        ):
            yield


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


def _connect(bucket: str, settings: StoreSettings, clients: S3Clients) -> tuple[RustStore, RustStore]:
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
        "client_options": client_options(settings, endpoint, clients.ca_file),
    }
    if not settings.no_sign_request:
        options["credential_provider"] = _credentials(bucket, clients)
    retrying = RustStore(bucket, retry_config={"max_retries": settings.attempts - 1}, **options)
    return retrying, RustStore(bucket, retry_config={"max_retries": 0}, **options)


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
