"""The errors of stores, tables and formats.

Every error of Accel descends from one base. There are few classes on purpose. Each class says whether another attempt
may help (`retryable`) and what the user can do (`advice`). The message describes the details for people; programs
should not parse it.

    AccelError
    ├── StoreError                 the object store did not carry out a request
    │   ├── KeyMissing             no object at this key
    │   ├── BucketMissing          no such bucket
    │   ├── WrongFolder            the folder of a store is gone, or has another id         (retryable)
    │   ├── StoreFull              no space is left, or a quota is used up
    │   ├── AccessDenied           the credentials may not do this
    │   ├── CredentialsMissing     no credentials were found
    │   │   └── CredentialsExpired  the store does not accept the credentials (any more)     (retryable)
    │   ├── PreconditionFailed     a conditional request lost: the object is not the version that the caller named
    │   │   └── ObjectExists       another object is at the key of an object to be written
    │   ├── NamespaceShared        an object that another system wrote is at the key of an object to be written
    │   ├── WriteConflict          a conditional write raced another one and was not decided: read again
    │   ├── RangeInvalid           the requested bytes are outside the object
    │   ├── StoreUnavailable       timed out, failed or lost its connection; the retries are used up
    │   │   ├── StoreThrottled     the store asks for fewer requests: 503 SlowDown, 429
    │   │   └── EndpointUnreachable  nothing answers at the endpoint's name and port
    │   │       └── WrongServer    what answers there is no object store
    │   └── RequestRefused         the store rejects the request itself
    ├── TableError                 a versioned table could not carry out a request
    │   ├── DataExists             the key to be created exists already
    │   ├── DataNotFound           the key does not exist
    │   │   └── TableMissing       the table does not exist
    │   ├── DataConflict           the key is no longer the version that the caller read
    │   └── AmbiguousWrite         the reply was lost, and the stored value does not show whether it was written
    ├── FormatError                bytes that do not have their format
    │   ├── CorruptObject          an object whose bytes contradict the format or themselves
    │   ├── FormatLimit            an object to be written is larger than the format can express
    │   ├── NameRefused            a name that cannot be part of a key
    │   └── FormatTooNew           a newer release wrote this, in a form that this release cannot read
    ├── Closed                     the called object is closed, or was closed during the call
    ├── WrongProcess               the called object belongs to another process
    ├── NoThread                   the host lets this process start no further thread
    └── (lookups and histories: see accel/errors.py)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from loaders.versions import Entry


FOUND_LENGTH_MAX = 1_000
"""Characters of damaged bytes that an error shows."""


_USER_OF_URL = re.compile(r"(?<=://)[^\s/?#\"'<>]*@")
_SIGNATURE_OF_URL = re.compile(
    r"([?&](?:sig|signature|awsaccesskeyid|x-(?:amz|goog)-(?:signature|credential|security-token))=)[^\s&#\"'<>]*",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """The same text without users and passwords of URLs, and without signatures and keys in their queries.

    >>> redacted("no answer from http://me:secret@10.0.0.1:9000/bucket")
    'no answer from http://***@10.0.0.1:9000/bucket'
    """
    return _SIGNATURE_OF_URL.sub(r"\1***", _USER_OF_URL.sub("***@", text))


def shortened(text: str) -> str:
    """The same text, or its beginning: text from damaged bytes may be very long."""
    return text if len(text) <= FOUND_LENGTH_MAX else f"{text[:FOUND_LENGTH_MAX]}... ({len(text)} characters)"


class AccelError(Exception):
    """The base class of all errors of Accel."""

    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later without any change."""

    advice: ClassVar[str] = ""
    """A text for the user: how to solve the problem."""

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        # Errors cross process borders; the default would call the constructor with the message only.
        return _copied, (type(self), self.args, vars(self))


def _copied(kind: type[AccelError], args: tuple[object, ...], attributes: dict[str, object]) -> AccelError:
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


class Closed(AccelError):
    """The called object is closed, or was closed during the call; the call may have taken effect."""

    advice = "open it again; close it when it is no longer in use"


class WrongProcess(AccelError):
    """The called object belongs to another process: this one was forked from it, or got a copy. Nothing was done.

    A session, its ids and the position of a reader exist once. Two processes that both used them would overwrite each
    other's objects.
    """

    advice = (
        "open a session, a writer or a reader in each process that needs one, after it was started; "
        "to another process send the store, or its URL"
    )


class NoThread(AccelError, RuntimeError):
    """No further thread could be started: the container, the user or the machine has all that it may have."""

    advice = (
        "raise the limit to 256 threads, or to 32 for a small store: each request to a store that is under way needs "
        "one, and there are up to 64 of them, besides slow ones"
    )


class StoreError(AccelError):
    """The object store did not carry out a request.

    Args:
        operation: the request, such as ``get_range``.
        key: the object's key, or the prefix of a listing.
        detail: the store's answer; users and passwords are removed from URLs in it.
        advice: what solves this very problem; by default that of its class.
    """

    def __init__(self, operation: str, key: str, detail: str, advice: str = "") -> None:
        detail = redacted(detail)
        super().__init__(f"{operation} {key!r}: {detail}")
        if advice:
            self.advice = advice  # type: ignore[misc]  # in this case alone
        self.operation = operation
        self.key = key
        self.detail = detail


def names_key(error: Exception, key: str) -> bool:
    """Whether an error is about a key. The key in an error of a store has the prefix of the store before it."""
    named = getattr(error, "key", None)
    return isinstance(named, str) and (named == key or named.endswith(f"/{key}"))


class KeyMissing(StoreError):
    """There is no object at this key."""

    advice = "the object was deleted or never written; a newer metadata image may no longer name it"


class BucketMissing(StoreError):
    """The bucket does not exist."""

    advice = "check the bucket's name, which is the first part of s3://bucket/prefix, the account and the endpoint"


class WrongFolder(StoreError):
    """The folder of a store is gone, or does not have the id of the store. Nothing was read or written.

    Requests go on as soon as the folder has the id again.
    """

    retryable = True
    advice = (
        "if it is on a volume, mount that again: all goes on by itself; do not make a catalog in its place, and do not "
        "copy files into it"
    )


class StoreFull(StoreError):
    """No space is left in the store, or a quota or a limit of sizes is used up. Nothing was written."""

    advice = (
        "free space, or raise the quota (df, quota, ulimit -f), and call again: nothing else is needed; "
        "accel catalog gc --yes deletes what no reader needs, also on a full disk"
    )


class AccessDenied(StoreError):
    """The credentials lack a permission; without s3:ListBucket a missing key is reported so too."""

    advice = (
        "grant the permission (deploy/iam has a policy for each role), or name the bucket and the prefix that these "
        "credentials may use; a folder must be writable for this user, and mounted for writing"
    )


class CredentialsMissing(StoreError):
    """AWS's configuration chain has no credentials, or could not get them. Nothing was sent."""

    advice = (
        "give credentials as for any AWS tool: AWS_PROFILE or --profile, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
        "or a role of the machine; a public bucket is read with --no-sign-request"
    )


class CredentialsExpired(CredentialsMissing):
    """The credentials have expired, or the store does not know them (any more), and no others were found so far.

    New ones are taken up by the next request, within ten seconds: from profiles and their files, from a process, a role
    or a web identity.
    """

    retryable = True
    advice = (
        "renew the credentials where AWS's configuration chain finds them (the shared credentials file, the role, the"
        " token file): running processes take them up; variables of the environment need a new process"
    )


class PreconditionFailed(StoreError):
    """A conditional request lost: the object exists already, or is not the version that the caller named."""

    advice = "read the object again and decide by its present content"


class ObjectExists(PreconditionFailed):
    """Another object, with other bytes, is at the key of an object that is written only once; it was not changed."""

    advice = "write it under a new id; if that happens again, the counter of ids went back: accel catalog verify"


class NamespaceShared(StoreError):
    """An object of another system is at the key of an object to be written: its metadata do not name this catalog.

    It was not changed, and nothing was committed.
    """

    advice = (
        "another system, or another catalog, writes objects under this prefix and namespace: give one of them another "
        "prefix or namespace; accel doctor shows whether the store keeps the metadata that prove who wrote an object"
    )


class WriteConflict(StoreError):
    """A conditional write raced another one; the store does not say which one was written."""

    retryable = True
    advice = "read the object again and decide by its present content"


class RangeInvalid(StoreError):
    """The requested bytes are outside the object."""

    advice = "the object is shorter than its metadata says: verify it"


class StoreUnavailable(StoreError):
    """The request was throttled, timed out or lost its connection, after all retries."""

    retryable = True
    advice = "try again later; if it lasts, check the health of the store and the request rates"


class StoreThrottled(StoreUnavailable):
    """The store asks for fewer requests, or is overloaded (503 SlowDown, 429), after all retries."""

    advice = (
        "send fewer requests at a time: a smaller parallel_loads, jobs one after the other or at another time; "
        "a 503 without a code may also come from a proxy whose server is down"
    )


class EndpointUnreachable(StoreUnavailable):
    """No connection to the endpoint: unknown name, nothing at the port, no TLS or no trust in it, or too late."""

    advice = (
        "check the endpoint's name and port (--endpoint-url, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile), "
        "then whether the server runs, and the network between"
    )


class WrongServer(EndpointUnreachable):
    """What answers at the endpoint is no object store: a console, a proxy, another service."""

    advice = (
        "check host, port and scheme of the endpoint (--endpoint-url, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the "
        "profile): a console has another port than the store; then proxies before it, and HTTP_PROXY and NO_PROXY"
    )


class RequestRefused(StoreError):
    """The store understood the request and rejects it."""

    advice = "a setting does not fit this endpoint; the message of the store says which"


class TableError(AccelError):
    """A versioned table could not carry out a request.

    Args:
        table: the table's name.
        key: the key within it; empty if the error concerns the whole table.
        detail: what was expected, and what was found.
    """

    code: ClassVar[str] = ""
    """The kind, in the terms of controllers of stream stores."""

    def __init__(self, table: str, key: str, detail: str) -> None:
        where = f"table {table!r}, key {key!r}" if key else f"table {table!r}"
        super().__init__(f"{where}: {detail}")
        self.table = table
        self.key = key
        self.detail = detail


class DataExists(TableError):
    """A key that was to be created exists; nothing was written."""

    code = "DATA_EXISTS"
    advice = "read it; update it with the version that was read"


class DataNotFound(TableError):
    """The key does not exist, or was deleted; nothing was written."""

    code = "DATA_NOT_FOUND"
    advice = "it was never created or was deleted; create it if it should exist"


class TableMissing(DataNotFound):
    """The table does not exist, or was dropped."""

    advice = "create the table first; a bucket without a catalog gets one by accel catalog init"


class DataConflict(TableError):
    """Another writer wrote the key after the caller read it; nothing was written.

    Attributes:
        entry: the stored entry, if the table read it.
    """

    code = "WRITE_CONFLICT"
    retryable = True
    advice = "read it again, apply the change to the present value, and write the result"
    entry: Entry | None = None


class AmbiguousWrite(TableError):
    """The reply to a conditional write was lost, and later writers hide whether it was carried out."""

    code = "AMBIGUOUS"
    advice = "read the key and check whether its present value contains the change"


class FormatError(AccelError):
    """Bytes that do not have their format, or a value that a format cannot express."""


class CorruptObject(FormatError):
    """An object's bytes contradict the format or themselves.

    Args:
        key: the object's key.
        size_bytes: the object's size as its metadata or the store reports it, or -1 if it is not known.
        expected: what the format requires.
        found: what the bytes contain.
    """

    advice = "do not delete anything; compare the object with its metadata (accel object verify) and restore it"

    def __init__(self, key: str, size_bytes: int, *, expected: str, found: str) -> None:
        expected, found = shortened(expected), shortened(found)
        size = f"{size_bytes} bytes" if size_bytes >= 0 else "of unknown size"
        super().__init__(f"object {key!r} ({size}) is corrupt: expected {expected}, found {found}")
        self.key = key
        self.size_bytes = size_bytes
        self.expected = expected
        self.found = found


class FormatLimit(FormatError):
    """An object to be written is larger than the format can express; nothing was written."""

    advice = "write the data to more than one object"


class NameRefused(FormatError, ValueError):
    """A name that cannot be part of an object's key, or that has unprintable characters; nothing was written."""

    advice = "choose a name of printable characters without a slash, of at most 255 UTF-8 bytes"


class FormatTooNew(FormatError):
    """A newer release wrote this, in a form that this release cannot read; nothing was changed."""

    advice = "upgrade this program: docs/reference/tables.md says how"
