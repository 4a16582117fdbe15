"""The error classes for the errors of stores: one table for all clients.

S3 names an error by a code (`NoSuchKey`) and an HTTP status (404); clients raise exceptions for errors before an answer
arrives. This table is searched by the code first, then by the status, then by the name of the exception's class (so
that this module imports no client). Servers agree on codes and statuses, not on messages, so messages are ignored.

For a conditional write some answers have another meaning:

    | answer           | plain request    | conditional write  | because                                               |
    |------------------|------------------|--------------------|-------------------------------------------------------|
    | 404 NoSuchKey    | KeyMissing       | PreconditionFailed | If-Match on a missing key: S3 answers 404, others 412 |
    | 409              | WriteConflict    | WriteConflict      | another conditional write was under way               |
    | 500              | StoreUnavailable | WriteConflict      | Ceph's answer to the loser of a race                  |
    | no answer at all | StoreUnavailable | StoreUnavailable   | it may have been written: see the cause of the error  |

A page of HTML, JSON, or an answer without what every store sends is no answer of a store, whatever its status:
`foreign_answer` finds out and describes it, so that a proxy's 404 is not taken for a missing key. What a client says
before there is an answer (TLS, proxies) is searched for words of OpenSSL, rustls and hyper, which have no codes.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from loaders.errors import (
    AccessDenied,
    BucketMissing,
    CredentialsExpired,
    CredentialsMissing,
    EndpointUnreachable,
    KeyMissing,
    PreconditionFailed,
    RangeInvalid,
    RequestRefused,
    StoreError,
    StoreFull,
    StoreThrottled,
    StoreUnavailable,
    WriteConflict,
    WrongServer,
    redacted,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    Table = Mapping[str, type[StoreError]]

BY_CODE: Table = MappingProxyType(
    {
        "NoSuchKey": KeyMissing,
        "NoSuchBucket": BucketMissing,
        "NoSuchUpload": RequestRefused,
        "AccessDenied": AccessDenied,
        "InvalidAccessKeyId": CredentialsExpired,
        "SignatureDoesNotMatch": CredentialsExpired,
        "ExpiredToken": CredentialsExpired,
        "InvalidToken": CredentialsExpired,
        "InvalidTokenId": CredentialsExpired,  # MinIO
        "TokenRefreshRequired": CredentialsExpired,
        "InvalidObjectState": RequestRefused,  # 403: the object is in an archive
        "PreconditionFailed": PreconditionFailed,
        "ConditionalRequestConflict": WriteConflict,
        "OperationAborted": WriteConflict,
        "BucketAlreadyExists": RequestRefused,
        "BucketAlreadyOwnedByYou": RequestRefused,
        "BucketNotEmpty": RequestRefused,
        "InvalidRange": RangeInvalid,
        "RequestTimeout": StoreUnavailable,  # 400: the body came too slowly
        "RequestTimeTooSkewed": RequestRefused,  # 403, but the cause is a wrong clock
        "SlowDown": StoreThrottled,
        "Throttling": StoreThrottled,
        "ThrottlingException": StoreThrottled,
        "RequestLimitExceeded": StoreThrottled,
        "SlowDownRead": StoreThrottled,  # MinIO
        "SlowDownWrite": StoreThrottled,
        "TooManyRequests": StoreThrottled,
        "ServerBusy": StoreThrottled,  # Azure
        "ServiceUnavailable": StoreThrottled,
        "SecondLevelDomainForbidden": RequestRefused,  # OSS, 403: the bucket must be in the host's name
        "PathStyleDomainForbidden": RequestRefused,  # COS, 403, likewise
        "NotImplemented": RequestRefused,
        "InsufficientStorage": StoreFull,
        "XMinioStorageFull": StoreFull,
        "XMinioAdminBucketQuotaExceeded": StoreFull,
        "QuotaExceeded": StoreFull,  # Ceph, 403
        # Azure's own names
        "AuthenticationFailed": CredentialsExpired,
        "BlobNotFound": KeyMissing,
        "ContainerNotFound": BucketMissing,
        "ContainerBeingDeleted": BucketMissing,
        "BlobAlreadyExists": PreconditionFailed,  # 409, but the outcome is known
        "ConditionNotMet": PreconditionFailed,
        "LeaseIdMissing": RequestRefused,  # 412, but not of a condition of the request
        "BlobArchived": RequestRefused,  # 409: the object is in an archive
    }
)

BY_STATUS: Mapping[int, type[StoreError]] = MappingProxyType(
    {
        401: CredentialsExpired,
        403: AccessDenied,
        404: KeyMissing,
        408: StoreUnavailable,
        409: WriteConflict,
        412: PreconditionFailed,
        416: RangeInvalid,
        429: StoreThrottled,
        501: RequestRefused,
        503: StoreThrottled,
        507: StoreFull,
    }
)

BY_EXCEPTION: Table = MappingProxyType(
    {
        # botocore: no answer, or only a part of one
        "HTTPClientError": StoreUnavailable,
        "ConnectionError": StoreUnavailable,
        "EndpointConnectionError": EndpointUnreachable,
        "ConnectTimeoutError": EndpointUnreachable,
        "SSLError": EndpointUnreachable,
        "IncompleteReadError": StoreUnavailable,
        "FlexibleChecksumError": StoreUnavailable,
        "OSError": StoreUnavailable,
        # botocore: no credentials
        "NoCredentialsError": CredentialsMissing,
        "PartialCredentialsError": CredentialsMissing,
        "CredentialRetrievalError": CredentialsMissing,
        "MetadataRetrievalError": CredentialsMissing,
        "NoAuthTokenError": CredentialsMissing,
        "TokenRetrievalError": CredentialsMissing,
        "SSOError": CredentialsMissing,
        "LoginError": CredentialsMissing,
        # botocore: all others concern a setting or an argument
        "BotoCoreError": RequestRefused,
        # obstore, where its errors have no code and status
        "FileNotFoundError": KeyMissing,
        "AlreadyExistsError": PreconditionFailed,
        "PreconditionError": PreconditionFailed,
        "PermissionDeniedError": AccessDenied,
        "UnauthenticatedError": CredentialsExpired,
        "InvalidPathError": RequestRefused,
        "NotSupportedError": RequestRefused,
        "UnknownConfigurationKeyError": RequestRefused,
        "BaseError": StoreUnavailable,
    }
)

_REGION: Final = "name the bucket's region, which the message or its owner has: --region, AWS_REGION or the profile's"
_VIRTUAL: Final = "this server wants the bucket in the host's name: --addressing-style virtual, or that of the profile"
_OTHER_KEY: Final = "the store has no such access key: check AWS_ACCESS_KEY_ID, the profile, and whose the endpoint is"
CHECKSUM_ADVICE: Final = (
    "servers that do not know checksums in trailers (aws-chunked) need AWS_REQUEST_CHECKSUM_CALCULATION=when_required "
    "(request_checksum_calculation of the profile), or --client obstore; else the message says what does not fit"
)

ADVICE_BY_CODE: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("InvalidAccessKeyId", "InvalidToken", "InvalidTokenId"), _OTHER_KEY),
        "SignatureDoesNotMatch": "the secret key is not that of the access key: check AWS_SECRET_ACCESS_KEY (cut off, "
        "or with a space?) or the profile; then --region, and proxies that change the host's name or the path",
        "RequestTimeTooSkewed": "set this machine's clock (NTP): it differs too much from the store's",
        **dict.fromkeys(
            ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"), _REGION
        ),
        **dict.fromkeys(("SecondLevelDomainForbidden", "PathStyleDomainForbidden"), _VIRTUAL),
    }
)
"""What solves a problem that its class does not distinguish from others."""

PERMISSIONS: Mapping[str, str] = MappingProxyType(
    {"get": "GetObject", "list": "ListBucket", "delete": "DeleteObject", "abort": "AbortMultipartUpload"}
    | dict.fromkeys(("put", "start", "upload", "copy", "complete"), "PutObject")
)
"""The first word of a store's method -> the permission of S3."""

_CERTIFICATE: Final = (
    "name the certificates of the authority that signed the server's: --ca-bundle, AWS_CA_BUNDLE or SSL_CERT_FILE; "
    "unless the message says that it has expired, or is of another name"
)
_IN_CLEAR: Final = "the port speaks HTTP without TLS: write http:// in the endpoint, or name the port with TLS"
_NO_HTTP: Final = "try again; if it lasts, the port does not speak HTTP: check it, and whether it wants https://"
_PROXY: Final = "check HTTP_PROXY and HTTPS_PROXY; NO_PROXY names hosts that need no proxy"
_BY_WORDS: Final[tuple[tuple[str, type[StoreError], str], ...]] = (
    (r"CERTIFICATE_VERIFY_FAILED|InvalidCertificate", EndpointUnreachable, _CERTIFICATE),
    (r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|InvalidContentType", EndpointUnreachable, _IN_CLEAR),
    (r"^ProxyConnectionError", EndpointUnreachable, _PROXY),
    (r"following redirect|(ETag|Last-Modified) Header missing|Got invalid [a-z ]+ response", WrongServer, ""),
    (r"^ConnectionClosedError|BadStatusLine|SendRequest,\s+hyper", StoreUnavailable, _NO_HTTP),
    (r"tcp connect error|dns error|Connect,", EndpointUnreachable, ""),
)


class ForeignAnswerError(ValueError):
    """What answered is no store; the message contains what was expected and found."""


_HTML: Final = re.compile(rb"<!doctype\s+html|<html", re.IGNORECASE)
_TITLE: Final = re.compile(rb"<title[^>]*>\s*([^<]{1,80})", re.IGNORECASE)
_READ_BYTES_MAX: Final = 2048
_ERRORS_OF_PROXIES: Final = frozenset({408, 429})


def foreign_answer(status: int, body: bytes, location: str = "", lacking: str = "") -> ForeignAnswerError | None:
    """The error for an answer that no store gives; None for one that a store may have given. Pure.

    Answers that ask for another attempt (408, 429, 5xx) are never foreign: proxies give them for a store that is away.

    Args:
        status: the HTTP status.
        body: the body, or its first bytes. Stores send XML, or nothing.
        location: the header Location, of a redirect that is not in the words of S3.
        lacking: what every store sends and this answer lacks; empty = nothing.
    """
    if status >= 500 or status in _ERRORS_OF_PROXIES:
        return None
    beginning = body[:_READ_BYTES_MAX].lstrip(b"\xef\xbb\xbf \t\r\n")
    is_html = _HTML.search(beginning) is not None
    if not (is_html or location or lacking) and beginning[:1] in (b"", b"<"):
        return None
    title = _TITLE.search(beginning)
    if location:
        found = f"a redirect to {location[:200]}"
    elif is_html:
        found = f"HTML, {title[1].decode('utf-8', 'replace').strip()!r}" if title else "HTML"
    elif beginning:
        kind = "JSON" if beginning[:1] in (b"{", b"[") else "something else"
        found = f"{kind}: {beginning[:80].decode('utf-8', 'replace')!r}{lacking and f', without {lacking}'}"
    else:
        found = f"an answer without {lacking}"
    return ForeignAnswerError(redacted(f"expected an answer of an object store, found {found} (status {status})"))


def store_error(
    operation: str, key: str, detail: str, *, code: str = "", status: int = 0, conditional: bool = False
) -> StoreError:
    """The error for an answer with this code and status.

    Args:
        operation: the store's method, such as ``get_range``.
        key: the object's key, or the prefix of a listing.
        detail: the message of the store, for people.
        code: S3's name of the error; empty if the answer had none.
        status: the HTTP status; 0 if it is not known.
        conditional: whether it is the answer to a write with a condition.
    """
    kind = _kind(code, status, conditional=conditional)
    return kind(operation, key, detail, ADVICE_BY_CODE.get(code) or _advice(kind, operation))


def _advice(kind: type[StoreError], operation: str) -> str:
    """What this operation needs, where its class does not say that."""
    if kind is RequestRefused and operation in ("put", "upload_part"):
        return CHECKSUM_ADVICE
    permission = PERMISSIONS.get(operation.partition("_")[0])
    if kind is not AccessDenied or permission is None:
        return ""
    more = ", and s3:ListBucket: without it S3 answers 403 for a missing key" if operation.startswith("get") else ""
    where = "the bucket" if operation == "list" else "this key"
    return f"grant s3:{permission} on {where}{more}; or {AccessDenied.advice.partition(', or ')[2]}"


def is_throttled(code: str, status: int) -> bool:
    """Whether the store asks for fewer requests by an answer with this code and status."""
    return _kind(code, status, conditional=False) is StoreThrottled


def named_bucket(detail: str, code: str, bucket: str) -> str:
    """The message of the store; if the bucket is missing, with the bucket's name."""
    is_missing = BY_CODE.get(code) is BucketMissing
    return f"no bucket {bucket!r}: {detail}" if is_missing and bucket else detail


def store_error_of(operation: str, key: str, exception: BaseException) -> StoreError:
    """The error for a client's exception that carries neither code nor status."""
    redact(exception)
    if isinstance(exception, ForeignAnswerError):
        return WrongServer(operation, key, str(exception))
    detail = f"{type(exception).__name__}: {exception}"
    kind, advice = kind_by_words(detail, exception)
    return kind(operation, key, detail, advice)


def kind_by_words(words: str, exception: BaseException) -> tuple[type[StoreError], str]:
    """The error class, and the advice if it differs, for what a client says of a connection; else by its class."""
    found = ((kind, advice) for pattern, kind, advice in _BY_WORDS if re.search(pattern, words))
    return next(found, (kind_of_exception(exception), ""))


def redact(exception: BaseException) -> None:
    """Remove users and passwords of URLs from a client's exception, which logs print as a cause."""
    exception.args = tuple(redacted(argument) if isinstance(argument, str) else argument for argument in exception.args)


def kind_of_exception(exception: BaseException) -> type[StoreError]:
    """The error class for a client's exception, by its class or its nearest base; RequestRefused if unknown."""
    names = (base.__name__ for base in type(exception).__mro__)
    return next((BY_EXCEPTION[name] for name in names if name in BY_EXCEPTION), RequestRefused)


def _kind(code: str, status: int, *, conditional: bool) -> type[StoreError]:
    kind = BY_CODE.get(code) or BY_STATUS.get(status)
    if kind is None:
        kind = StoreUnavailable if status >= 500 else RequestRefused
    if conditional and kind is KeyMissing:
        return PreconditionFailed
    if conditional and status == 500:
        return WriteConflict
    return kind
