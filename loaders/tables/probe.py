"""Whether an endpoint obeys the conditions of writes; it is tried before a process relies on them.

All tables depend on two conditional verbs. An endpoint that accepts their header and ignores it would lose changes
silently; and a bucket may be moved behind such an endpoint, or a gateway, at any time. There are two probes:

    | probe                | when                                    | requests                                     |
    |----------------------|-----------------------------------------|----------------------------------------------|
    | `probe_conditions`   | a catalog is made, and by `doctor`      | six or seven, on another key, then deleted   |
    | `require_conditions` | before the first conditional write of a | two, on `CONDITIONS_KEY`, which stays        |
    |                      | process to a store                      |                                              |

The first also finds out whether the endpoint requires quotes around the ETag of If-Match: S3 and the standard do, Ceph
compares without quotes.

    | step | request                               | must be                            |
    |------|---------------------------------------|------------------------------------|
    | 1    | PUT If-None-Match: *, a missing key   | written                            |
    | 2    | GET                                   | the ETag of 1                      |
    | 3    | PUT If-Match: "the ETag of 1", quotes | written: quotes are required       |
    | 4    | if not: the same without quotes       | written: quotes are not accepted   |
    | 5    | PUT If-None-Match: *                  | refused                            |
    | 6    | PUT If-Match: `STALE_ETAG`            | refused                            |
    | 7    | DELETE                                | (cleanup)                          |

The second consists of steps 5 and 6, with the bytes that the key has already: a write that should have been refused
destroys nothing. If the key is missing, step 5 creates it and is repeated once. 409, 429, 500, 503 and lost replies
show nothing; after three of them the error is raised, and the next write probes again.

A gateway that drops conditions later, or one of several gateways, may pass. Sessions of writers notice their losses
(`accel.catalog.writer`), and `IdBlocks` a counter that was written by two.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from weakref import WeakKeyDictionary

from loaders.backoff import Backoff
from loaders.errors import PreconditionFailed, RequestRefused, StoreError, StoreUnavailable, WriteConflict
from loaders.layout import CONDITIONS_KEY, PROBE_PREFIX
from loaders.lifetime import ProcessLock
from loaders.shared_loads import SharedLoads
from loaders.store.base import STALE_ETAG, Condition, CreateOnly, IfMatch, ObjectStore
from loaders.store.decorated import undecorated

PROBES_MAX = 3
"""Total attempts of a probe; an answer that shows nothing starts the next one."""

CONDITIONS_BODY = b"accel: conditions"
"""The bytes at `CONDITIONS_KEY`; the first character of their MD5 is not that of `STALE_ETAG`."""

_lock = ProcessLock()
_obeying: WeakKeyDictionary[ObjectStore, SharedLoads[str, bool]] = WeakKeyDictionary()


def require_conditions(store: ObjectStore, backoff: Backoff, quotes: bool | None) -> None:
    """Check that a store obeys conditions. Two requests, once for each process and store; none for memory and folders.

    Threads: any; one sends the requests, and the others wait for it. No lock is held meanwhile.

    Args:
        store: stores that share one client, behind decorators that do not change writes, count as one.
        backoff: pauses between attempts.
        quotes: whether this endpoint requires quotes in If-Match; None = as in the store's settings.

    Raises:
        RequestRefused: the endpoint ignores one of the conditions.
        StoreError: the endpoint does not answer, or does not permit to write `CONDITIONS_KEY`.
    """
    client = undecorated(store)
    if client.keeps_conditions:
        return
    with _lock:
        known = _obeying.setdefault(client, SharedLoads(1, lambda _: 1))
    known.get(CONDITIONS_KEY, lambda: _obeys(store, backoff, quotes))


def _obeys(store: ObjectStore, backoff: Backoff, quotes: bool | None) -> bool:
    def try_both() -> bool:
        _refuse_ignored(store, CONDITIONS_KEY, CONDITIONS_BODY, quotes, may_be_missing=True)
        return True

    return backoff.repeat(try_both, lambda error: isinstance(error, StoreUnavailable | WriteConflict), PROBES_MAX)


def probe_conditions(store: ObjectStore, nonce: Callable[[], bytes]) -> bool:
    """Probe the conditional writes of an endpoint; return whether If-Match requires quotes. Six or seven requests.

    Args:
        store: the store to probe.
        nonce: returns 16 random bytes.

    Raises:
        RequestRefused: the endpoint ignores one of the conditions, or always refuses it; or a read has another ETag
            than the write, such as a weak one.
        StoreError: the endpoint does not answer, or does not permit writes.
    """
    attempt = 1
    while True:
        key = PROBE_PREFIX + nonce().hex()
        try:
            return _wants_quotes(store, key)
        except (StoreUnavailable, WriteConflict):
            attempt += 1
            if attempt > PROBES_MAX:
                raise
        finally:
            with suppress(StoreError):
                store.delete(key)


def _wants_quotes(store: ObjectStore, key: str) -> bool:
    etag = store.put(key, b"created", condition=CreateOnly())
    if (found := store.get(key).etag) != etag:
        raise _refused(key, f"changes ETags: expected {etag} of the write, found {found} (does a proxy compress?)")
    quotes = _put(store, key, b"with quotes", IfMatch(etag, quotes=True))
    if not quotes and not _put(store, key, b"without quotes", IfMatch(etag, quotes=False)):
        raise _refused(key, "refuses If-Match with and without quotes, although the ETag is the object's")
    _refuse_ignored(store, key, b"refused", quotes)
    return quotes


def _refuse_ignored(
    store: ObjectStore, key: str, body: bytes, quotes: bool | None, *, may_be_missing: bool = False
) -> None:
    if _put(store, key, body, CreateOnly()) and not (may_be_missing and not _put(store, key, body, CreateOnly())):
        raise _refused(key, "ignores If-None-Match: it created an object that existed")
    if _put(store, key, body, IfMatch(STALE_ETAG, quotes)):
        raise _refused(key, "ignores If-Match: it replaced an object that has another ETag")


def _put(store: ObjectStore, key: str, body: bytes, condition: Condition) -> bool:
    try:
        store.put(key, body, condition=condition)
    except PreconditionFailed:
        return False
    return True


def _refused(key: str, what: str) -> RequestRefused:
    return RequestRefused("put", key, f"this endpoint {what}; tables would lose writes")
