"""S3 through boto3: the default client, and the only module that imports it.

Retries: botocore's standard mode with jitter repeats failed requests, `settings.attempts` requests in all. A write with
a condition goes through a second client of the same session that sends once: a repetition would find the object of the
first request and report a failed condition although the write succeeded. botocore does not check a body while it is
read; a GET whose body is interrupted is sent once more, at once, and then raises StoreUnavailable. A body that is
shorter than its header says is never returned.

Checksums, proxies, certificates, endpoints, credentials: from AWS's configuration chain.

Credentials are replaced while a process runs: an agent writes the shared credentials file anew, a role is renewed.
botocore renews those of which it knows when they expire, and keeps all others for ever. So if the store does not accept
them (any more), the chain is searched again, at most every 10 s; if it has others, the refused request is signed with
those and sent again, also one with a condition: what was refused was not written.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import CredentialProvider, CredentialResolver, Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError, ClientError, FlexibleChecksumError, HTTPClientError, IncompleteReadError

from loaders.errors import KeyMissing, RangeInvalid, StoreError
from loaders.lifetime import PerProcess
from loaders.store.base import (
    ALWAYS,
    LIST_PAGE_KEYS_MAX,
    CreateOnly,
    DeleteFailure,
    Fetched,
    IfMatch,
    ListPage,
    ObjectInfo,
    PagedListing,
    PartReceipt,
    bare_etag,
    check_page_limit,
    check_part_number,
    check_range,
    check_size,
    check_strong,
    check_tail,
    cut,
    delete_each,
    delete_in_batches,
    is_of_the_store,
    mark_in,
    metadata_of,
    parse_content_range,
    range_header,
)
from loaders.store.bill import note_answer
from loaders.store.error_table import (
    ForeignAnswerError,
    foreign_answer,
    is_throttled,
    named_bucket,
    store_error,
    store_error_of,
)
from loaders.store.names import check_name
from loaders.store.settings import StoreSettings, check_endpoint_url, is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import ErrorTypeDef, GetObjectOutputTypeDef, ListObjectsV2OutputTypeDef

    from loaders.store.base import Body, Condition, DeleteFailures


logger = logging.getLogger(__name__)


def fetched(answer: GetObjectOutputTypeDef, key: str, size_bytes_max: int | None = None) -> Fetched:
    """Read the body of a GetObject, and the version and size of the object.

    Args:
        answer: of the client.
        key: the object's key, for errors.
        size_bytes_max: bound on the size of the whole object; None = no bound.

    Raises:
        CorruptObject: the object is longer; its body is not read.
        OSError: the body is shorter than its header says.
        ValueError: the answer has a Content-Range of an unknown form.
    """
    # No body is longer than its header says; a chunked body has no such header.
    length = answer.get("ContentLength", -1)
    with closing(answer["Body"]) as stream:
        check_size(key, length, size_bytes_max)
        body = stream.read() if length >= 0 or size_bytes_max is None else stream.read(size_bytes_max + 1)
    check_size(key, len(body), size_bytes_max)
    content_range, mark = answer.get("ContentRange", ""), mark_in(answer.get("Metadata", {}))
    if not content_range:
        return Fetched(body, bare_etag(answer["ETag"]), len(body), mark=mark)
    start, end, size = parse_content_range(content_range)
    if len(body) != end - start:
        raise ConnectionResetError(f"expected {end - start} bytes, found {len(body)}")
    return Fetched(body, bare_etag(answer["ETag"]), size, start, mark)


def listed(answer: ListObjectsV2OutputTypeDef) -> ListPage:
    """A page of ListObjectsV2.

    Raises:
        ValueError: the answer lacks a field, or contradicts itself.
    """
    try:
        found = [
            ObjectInfo(each["Key"], each["Size"], bare_etag(each.get("ETag", "")), each["LastModified"].timestamp())
            for each in answer.get("Contents", ())
        ]
        more = answer["IsTruncated"]
    except KeyError as error:
        raise ValueError(f"expected {error.args[0]} in a page of a listing, found none") from error
    token = answer.get("NextContinuationToken", "")
    if token and not more:
        raise ValueError("expected a page with a token to be truncated, found that it is not")
    if len(found) < answer.get("KeyCount", 0):
        raise ValueError(f"expected the {answer['KeyCount']} keys that a page counts, found {len(found)}")
    return ListPage(found, more, token)


def delete_failure(refused: ErrorTypeDef) -> DeleteFailure:
    """The failure for a key that DeleteObjects did not delete; its answer has a code but no status."""
    key, code = refused.get("Key", ""), refused.get("Code", "")
    detail = f"{code} {refused.get('Message', '')}".strip()
    return DeleteFailure(key, store_error("delete_many", key, detail, code=code))


class S3Multipart:
    """One upload; see `MultipartUpload`. Safe for many threads, as the client is.

    Args:
        client: a client that repeats failed requests; sending a part again replaces it.
        bucket: the bucket of the object.
        key: the key of the object.
        upload_id: S3's id of this upload.
        completing: the same client, with the time limit of completions.
    """

    def __init__(self, client: S3Client, bucket: str, key: str, upload_id: str, completing: S3Client) -> None:
        self._client = client
        self._completing = completing
        self._bucket = bucket
        self._key = key
        self.upload_id = upload_id

    def upload_part(self, number: int, body: Body) -> PartReceipt:
        """See `MultipartUpload.upload_part`."""
        check_part_number(number)
        content = body if isinstance(body, bytes) else bytes(body)
        with s3_errors("upload_part", self._key):
            answer = self._client.upload_part(
                Bucket=self._bucket, Key=self._key, UploadId=self.upload_id, PartNumber=number, Body=content
            )
            return PartReceipt(number, bare_etag(answer["ETag"]))

    def copy_part(self, number: int, source_key: str, start: int, end: int) -> PartReceipt:
        """See `MultipartUpload.copy_part`.

        Ceph 16 decodes the source's key twice: there a key with "%" denotes another object, or none.
        """
        check_part_number(number)
        check_range(start, end)
        with s3_errors("copy_part", source_key):
            answer = self._client.upload_part_copy(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=self.upload_id,
                PartNumber=number,
                CopySource={"Bucket": self._bucket, "Key": source_key},
                CopySourceRange=range_header(start, end),
            )
            return PartReceipt(number, bare_etag(answer["CopyPartResult"]["ETag"]))

    def complete(self, receipts: Iterable[PartReceipt]) -> str:
        """See `MultipartUpload.complete`."""
        ordered = sorted(receipts, key=lambda receipt: receipt.number)
        with s3_errors("complete", self._key):
            answer = self._completing.complete_multipart_upload(
                Bucket=self._bucket,
                Key=self._key,
                UploadId=self.upload_id,
                MultipartUpload={"Parts": [{"PartNumber": each.number, "ETag": f'"{each.etag}"'} for each in ordered]},
            )
            # Ceph returns an empty ETag for a completed upload; a HEAD of the object returns it.
            etag = answer.get("ETag") or self._client.head_object(Bucket=self._bucket, Key=self._key)["ETag"]
        return bare_etag(etag)

    def abort(self) -> None:
        """See `MultipartUpload.abort`."""
        with s3_errors("abort", self._key):
            try:
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=self.upload_id)
            except self._client.exceptions.NoSuchUpload:
                return


# Credentials

RENEWAL_SECONDS = 10.0
"""The least time between two searches for other credentials."""

REFUSED_CREDENTIALS = frozenset(
    {
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "InvalidTokenId",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
"""S3's names of refusals that other credentials may cure."""

UNAUTHORIZED = 401
_SIGNED_BY = "accel_credentials"


class CurrentCredentials(Credentials):
    """The credentials of a store's clients, which are replaced when the store refuses them. Threads: any.

    No lock is held while others are searched for; threads that need them meanwhile wait for that search.

    Args:
        found: those that the configuration chain has now.
        find: searches the chain again; None = there are none.
        timer: seconds from any start.
    """

    def __init__(
        self,
        found: Credentials,
        find: Callable[[], Credentials | None],
        timer: Callable[[], float] = time.monotonic,  # noqa: TID251 - a store is opened by a program, not a simulation
    ) -> None:
        self._found = found
        self._find = find
        self._timer = timer
        self._lock = Lock()
        self._search: Future[None] | None = None
        self._next_seconds = -math.inf
        self.number = 0
        self.method = found.method

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """The present credentials."""
        return self._found.get_frozen_credentials()

    def __getattr__(self, name: str) -> Any:
        """Key, secret and token of the present credentials, for who does not freeze them."""
        return getattr(self._found, name)

    def renewed_since(self, number: int) -> bool:
        """Whether there are others than those of this number; searches for them if the last search is 10 s ago."""
        with self._lock:
            if self.number != number:
                return True
            search, leads = self._search, False
            if search is None:
                if self._timer() < self._next_seconds:
                    return False
                search, leads = Future(), True
                self._search, self._next_seconds = search, self._timer() + RENEWAL_SECONDS
        if leads:
            try:
                self._renew()
            finally:
                self._search = None
                search.set_result(None)
        search.result()
        return self.number != number

    def _renew(self) -> None:
        try:
            found = self._find()
            is_other = found is not None and found.get_frozen_credentials() != self._found.get_frozen_credentials()
        except (BotoCoreError, ClientError, OSError, RuntimeError, ValueError) as error:  # a service that is away
            logger.warning("no other credentials were found: %s", error)
            return
        if found is not None and is_other:
            self._found = found
            self.number += 1
            logger.info("the credentials were refused, and other ones were found (%s)", found.method)

    # Events of botocore's clients

    def note_signer(self, **event: Any) -> None:
        """Called before a request is signed."""
        event["request"].context[_SIGNED_BY] = self.number

    def retry_delay_seconds(self, **event: Any) -> Any:
        """Called after each answer: 0 if the request was refused and there are other credentials; else None."""
        if event["response"] is None:
            return None
        answer, parsed = event["response"]
        if answer.status_code != UNAUTHORIZED and parsed.get("Error", {}).get("Code") not in REFUSED_CREDENTIALS:
            return None
        return 0.0 if self.renewed_since(event["request_dict"]["context"].get(_SIGNED_BY, self.number)) else None


class _Current(CredentialProvider):
    """Botocore's chain, with one member."""

    METHOD = "accel"

    def __init__(self, credentials: CurrentCredentials) -> None:
        self._credentials = credentials

    def load(self) -> CurrentCredentials:
        return self._credentials


PARTIAL_CONTENT, REDIRECTS, NOT_MODIFIED, REFUSALS, NOT_FOUND = 206, 300, 304, 400, 404
_FOREIGN_BYTES = 2048

_LOGGER = logging.getLogger(__name__)

_BROKEN_BODY = (HTTPClientError, IncompleteReadError, FlexibleChecksumError, OSError)
_AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


class _ReadHeaders(TypedDict, total=False):
    Range: str
    IfNoneMatch: str


class _WriteHeaders(TypedDict, total=False):
    IfMatch: str
    IfNoneMatch: str


class _ListFrom(TypedDict, total=False):
    StartAfter: str
    ContinuationToken: str


@dataclass(frozen=True, slots=True)
class S3Clients:
    """Clients of one session. Safe for many threads, as boto3's clients are.

    Attributes:
        session: finds credentials by AWS's configuration chain.
        retrying: repeats failed requests, with jittered backoff.
        once: sends each request once.
        completing: creates, once, a client like `retrying` with the time limit of completions. One thread at a time.
        ca_file: the file with the certificates of authorities; None = the system's.
    """

    session: boto3.Session
    retrying: S3Client
    once: S3Client
    completing: Callable[[], S3Client]
    ca_file: str | None

    @property
    def path_style(self) -> bool:
        """Whether the bucket is part of the path of the URL."""
        return _style(self.retrying) == "path"


@dataclass(slots=True, eq=False)
class _Connection:
    """The clients of one process, once they exist: a forked process would share the sockets of its parent.

    Attributes:
        lock: guards `clients`.
        clients: of the store.
        refuses_batches: whether the server refused DeleteObjects for keys that it deleted one by one.
    """

    lock: Lock = field(default_factory=Lock)
    clients: S3Clients | None = None
    refuses_batches: bool = False


def connect(settings: StoreSettings) -> S3Clients:
    """Create the clients of settings; sends no request.

    Raises:
        BotoCoreError: the configuration chain contradicts itself, such as a profile that does not exist.
    """
    if settings.endpoint_url is None and (endpoint := _named_endpoint()):
        check_endpoint_url(endpoint)
    core = botocore.session.get_session()
    core.register("before-parse.*.*", _refuse_foreign)  # before those of "s3.*", which change the status
    session = boto3.Session(botocore_session=core, profile_name=settings.profile, region_name=settings.region)
    core.register("needs-retry.s3", _note_answer)
    ca_file = settings.ca_file(core.get_config_variable("ca_bundle"))
    core.set_config_variable("ca_bundle", ca_file)
    if not settings.no_sign_request:
        _renew_when_refused(core, settings)
    style = {True: "path", False: "virtual", None: None}[settings.path_style]
    once = _client(session, settings, 1, style)
    # Only a client can report what the configuration chain says, so the first one is created for that.
    is_auto = settings.path_style is None and not _is_aws(once.meta.endpoint_url) and _style(once) == "auto"
    style, is_local = "path" if is_auto else style, is_loopback(once.meta.endpoint_url)
    client = partial(_client, proxies={} if is_local else None)
    if is_auto or is_local:
        once = client(session, settings, 1, style)
    patient = replace(settings, read_timeout_seconds=settings.completion_timeout_seconds)
    completing = cache(partial(client, session, patient, settings.attempts, style))
    return S3Clients(session, client(session, settings, settings.attempts, style), once, completing, ca_file)


def _note_answer(**event: Any) -> None:
    """Called by botocore after each answer, and after each failure to get one."""
    status, code = 0, ""
    if event["response"] is not None:
        answer, parsed = event["response"]
        status, code = answer.status_code, parsed.get("Error", {}).get("Code") or ""
    note_answer(is_repetition=event["attempts"] > 1, is_throttled=is_throttled(code, status))


_TAGGED = frozenset({"GetObject", "PutObject", "UploadPart"})
"""Operations whose answer has an ETag."""
_WORDY = frozenset({"ListObjectsV2", "CreateMultipartUpload", "CompleteMultipartUpload", "UploadPartCopy"})
"""Operations whose answer has a body."""
_NO_BUCKET = (NOT_FOUND, "ListObjectsV2")
"""A refusal that has a body on every server: it is of no key."""


def _refuse_foreign(**event: Any) -> None:
    """Called with each answer before botocore reads it, which would make a status 500 of a page of HTML."""
    operation, answer = event["operation_model"].name, event["response_dict"]
    status, headers, body = answer["status_code"], answer["headers"], answer["body"]
    if event["operation_model"].service_model.service_name != "s3" or operation.startswith("Head"):
        return
    lacking = location = ""
    if status < REDIRECTS and operation in _TAGGED and not headers.get("etag"):
        lacking = "an ETag"
    elif status == PARTIAL_CONTENT and not headers.get("content-range"):
        lacking = "a Content-Range"
    elif not body and (operation in _WORDY if status < REDIRECTS else (status, operation) == _NO_BUCKET):
        lacking = "a body"
    elif (
        REDIRECTS <= status < REFUSALS
        and status != NOT_MODIFIED
        and not body.startswith(b"<?xml")
        and "x-amz-bucket-region" not in headers
    ):
        location = headers.get("location", "")
    if not isinstance(body, bytes):  # of an object
        if not lacking and not _is_page(headers):
            return
        body = body.read(_FOREIGN_BYTES)
    if (foreign := foreign_answer(status, body, location, lacking)) is not None:
        raise foreign


def _is_page(headers: Any) -> bool:
    """Whether the body may be the page that a console sends for any path: HTML, and no header of S3."""
    return headers.get("content-type", "").startswith("text/html") and "x-amz-" not in str(headers.keys()).lower()


def _renew_when_refused(session: botocore.session.Session, settings: StoreSettings) -> None:
    """Let the clients of a session replace credentials that the store refuses."""
    found = session.get_component("credential_provider").load_credentials()
    if found is None:
        return

    def find() -> Credentials | None:
        again = botocore.session.Session(profile=settings.profile)
        if settings.region is not None:
            again.set_config_variable("region", settings.region)
        return again.get_credentials()

    credentials = CurrentCredentials(found, find)
    session.register_component("credential_provider", CredentialResolver([_Current(credentials)]))
    session.register("before-sign.s3", credentials.note_signer)
    session.register("needs-retry.s3", credentials.retry_delay_seconds)


def _style(client: S3Client) -> str:
    config = client.meta.config.s3 or {}  # type: ignore[attr-defined] # missing in the stubs
    return str(config.get("addressing_style") or "auto")


def _named_endpoint() -> str | None:
    """The endpoint in the environment: botocore would check it only after its search for credentials."""
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _client(
    session: boto3.Session,
    settings: StoreSettings,
    attempts: int,
    style: str | None,
    proxies: dict[str, str] | None = None,
) -> S3Client:
    config = Config(
        proxies=proxies,
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=settings.connections,
        connect_timeout=settings.connect_timeout_seconds,
        read_timeout=settings.read_timeout_seconds,
        s3={"addressing_style": style} if style else None,  # type: ignore[arg-type] # a string, not a literal
        signature_version=UNSIGNED if settings.no_sign_request else None,
    )
    return session.client("s3", endpoint_url=settings.endpoint_url, config=config)


def _is_aws(endpoint_url: str) -> bool:
    return (urlsplit(endpoint_url).hostname or "").endswith(_AWS_DOMAINS)


@contextmanager
def s3_errors(operation: str, key: str, *, bucket: str = "", conditional: bool = False) -> Iterator[None]:
    """Convert errors of boto3 to errors of stores, by the error table; the original is the cause.

    Args:
        operation: of the store.
        key: of the object.
        bucket: for the error that the bucket does not exist.
        conditional: whether it is a write with a condition.
    """
    try:
        yield
    except ClientError as error:
        code, status, detail = _refusal(error)
        detail = named_bucket(detail, code, bucket)
        raise store_error(operation, key, detail, code=code, status=status, conditional=conditional) from error
    except KeyError as error:
        foreign = ForeignAnswerError(f"expected {error.args[0]} in the answer of an object store, found none")
        raise store_error_of(operation, key, foreign) from error
    except (BotoCoreError, OSError, ValueError) as error:
        raise store_error_of(operation, key, error) from error


def _refusal(error: ClientError) -> tuple[str, int, str]:
    answer = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = answer.get("Code") or ""
    code = "" if code == str(status) else code  # botocore's own, where the server gave none
    named = dict(answer).get("Region")  # of errors about regions
    region = f"(region {named})" if named else ""
    return code, status, " ".join(filter(None, (str(status), code, answer.get("Message"), region)))


class S3Store(PagedListing):
    """A bucket. Safe for many threads; use at most `settings.connections` of them.

    The first request creates the clients, so that a store may be pickled, sent to another process, and find its
    credentials there. A forked process creates its own clients.

    Args:
        bucket: its name.
        settings: how to reach it.
    """

    can_copy_parts = True

    def __init__(self, bucket: str, settings: StoreSettings | None = None) -> None:
        self.bucket = bucket
        self.settings = settings or StoreSettings()
        self._connection = PerProcess("a connection", _Connection)

    def _errors(self, operation: str, key: str, *, conditional: bool = False) -> AbstractContextManager[None]:
        return s3_errors(operation, key, bucket=self.bucket, conditional=conditional)

    def __reduce__(self) -> tuple[type[S3Store], tuple[str, StoreSettings]]:
        return type(self), (self.bucket, self.settings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bucket!r}, {self.settings!r})"

    def clients(self) -> S3Clients:
        """The clients; the first call creates them. Raises the errors of `connect`."""
        connection = self._connection()
        with connection.lock:  # boto3's clients are safe for several threads; its sessions are not
            if connection.clients is None:
                connection.clients = connect(self.settings)
        check_name(connection.clients.once.meta.endpoint_url)
        return connection.clients

    def create_bucket(self) -> None:
        """Create the bucket unless this account has it already: for demos and tests."""
        with self._errors("create_bucket", self.bucket):
            client = self.clients().retrying
            region = client.meta.region_name
            # us-east-1 is the one region that must not be named.
            where = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
            try:
                client.create_bucket(Bucket=self.bucket, **where)  # type: ignore[arg-type] # region: a plain string
            except client.exceptions.BucketAlreadyOwnedByYou:
                return

    def get(self, key: str, *, size_bytes_max: int | None = None) -> Fetched:
        """See `ObjectStore.get`."""
        with self._errors("get", key):
            return self._fetch(key, size_bytes_max)

    def get_range(self, key: str, start: int, end: int) -> Fetched:
        """See `ObjectStore.get_range`."""
        check_range(start, end)
        with self._errors("get_range", key):
            found = self._fetch(key, Range=range_header(start, end))
        return cut("get_range", key, found, start, end)

    def get_tail(self, key: str, length: int) -> Fetched:
        """See `ObjectStore.get_tail`."""
        check_tail(length)
        try:
            with self._errors("get_tail", key):
                found = self._fetch(key, Range=f"bytes=-{length}")
        except RangeInvalid:
            found = self.get(key)  # an empty object has no last byte
        size = found.object_size_bytes
        return cut("get_tail", key, found, max(0, size - length), size) if size else found

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """See `ObjectStore.get_if_changed`."""
        with self._errors("get_if_changed", key):
            try:
                return self._fetch(key, size_bytes_max, IfNoneMatch=f'"{etag}"')
            except ClientError as error:
                if _refusal(error)[1] == NOT_MODIFIED:
                    return None
                raise

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """See `ObjectStore.put`."""
        check_strong(key, condition)
        headers, metadata = self._headers(condition), metadata_of(mark)
        content = body if isinstance(body, bytes) else bytes(body)
        with self._errors("put", key, conditional=bool(headers)):
            client = self.clients().once if headers else self.clients().retrying
            answer = client.put_object(Bucket=self.bucket, Key=key, Body=content, Metadata=metadata, **headers)
            return bare_etag(answer["ETag"])

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        with suppress(KeyMissing), self._errors("delete", key):
            self.clients().retrying.delete_object(Bucket=self.bucket, Key=key)

    def delete_many(self, keys: Iterable[str]) -> DeleteFailures:
        """See `ObjectStore.delete_many`. A server that refuses batches is asked for none again by this process."""
        return delete_in_batches(keys, self._delete_batch, self.delete)

    def list_page(
        self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_KEYS_MAX, token: str = ""
    ) -> ListPage:
        """See `ObjectStore.list_page`."""
        check_page_limit(limit)
        with self._errors("list", prefix):
            after: _ListFrom = {"StartAfter": start_after} if start_after else {}
            if token:
                after = {"ContinuationToken": token}
            client = self.clients().retrying
            return listed(client.list_objects_v2(Bucket=self.bucket, Prefix=prefix, MaxKeys=limit, **after))

    def date_seconds(self, prefix: str | None = "") -> float | None:  # noqa: ARG002 - nothing is written
        """See `DatedStore.date_seconds`: the header Date of the answer to HeadBucket, also of a refusal."""
        with self._errors("date", ""):
            try:
                headers = self.clients().once.head_bucket(Bucket=self.bucket)["ResponseMetadata"]["HTTPHeaders"]
            except ClientError as error:
                headers = error.response["ResponseMetadata"]["HTTPHeaders"]
        try:
            return parsedate_to_datetime(headers.get("date", "")).timestamp()
        except ValueError:
            return None

    def start_multipart(self, key: str, *, mark: str | None = None) -> S3Multipart:
        """See `ObjectStore.start_multipart`."""
        metadata = metadata_of(mark)
        with self._errors("start_multipart", key):
            client = self.clients().retrying
            answer = client.create_multipart_upload(Bucket=self.bucket, Key=key, Metadata=metadata)
            return self._upload(key, answer["UploadId"])

    def abort_multipart(self, key: str, upload_id: str) -> None:
        """See `ObjectStore.abort_multipart`."""
        self._upload(key, upload_id).abort()

    def _upload(self, key: str, upload_id: str) -> S3Multipart:
        clients = self.clients()
        with self._connection().lock:
            completing = clients.completing()
        return S3Multipart(clients.retrying, self.bucket, key, upload_id, completing)

    def _fetch(self, key: str, size_bytes_max: int | None = None, **asked: Unpack[_ReadHeaders]) -> Fetched:
        clients = self.clients()
        answer = clients.retrying.get_object(Bucket=self.bucket, Key=key, **asked)
        try:
            return fetched(answer, key, size_bytes_max)
        except _BROKEN_BODY:
            note_answer(is_repetition=True, is_throttled=False)
            return fetched(clients.once.get_object(Bucket=self.bucket, Key=key, **asked), key, size_bytes_max)

    def _headers(self, condition: Condition) -> _WriteHeaders:
        if isinstance(condition, CreateOnly):
            return {"IfNoneMatch": "*"}
        if isinstance(condition, IfMatch):
            return {"IfMatch": self.settings.condition_etag(condition.etag, condition.quotes)}
        return {}

    def _delete_batch(self, keys: Sequence[str]) -> DeleteFailures:
        connection = self._connection()
        if connection.refuses_batches:
            return delete_each(keys, self.delete)
        try:
            with self._errors("delete_many", keys[0]):
                answer = self.clients().retrying.delete_objects(
                    Bucket=self.bucket, Delete={"Objects": [{"Key": key} for key in dict.fromkeys(keys)]}
                )
        except StoreError as error:
            if is_of_the_store(error):
                raise
            failures = delete_each(keys, self.delete)
            if not failures:  # so it was not because of a key
                connection.refuses_batches = True
                _LOGGER.warning("%s is deleted from key by key: %s", self.bucket, error)
            return failures
        failures = [delete_failure(each) for each in answer.get("Errors", ())]
        failures = [each for each in failures if not isinstance(each.error, KeyMissing)]
        # What an answer does not name may still exist: some servers answer 200 to a request that they do not know.
        named = {each.get("Key") for each in (*answer.get("Deleted", ()), *answer.get("Errors", ()))}
        return failures + delete_each([key for key in keys if key not in named], self.delete)
