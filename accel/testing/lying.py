"""A store that answers as servers were seen to answer: odd, and sometimes untrue.

    store = LyingStore(MemoryStore(), random.Random(7), {Lie.EMPTY_PAGE: 0.3, Lie.BATCH_REFUSED: 1.0})

A chance of 1.0 makes a property of the server of it. `FaultStore` is for requests that fail.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote

from accel.testing.stores import Chances
from loaders.lifetime import ProcessLock
from loaders.store.base import (
    ALWAYS,
    LIST_PAGE_KEYS_MAX,
    DeleteFailure,
    DeleteFailures,
    Fetched,
    ListPage,
    ObjectInfo,
)
from loaders.store.decorated import GETS, DecoratedStore, StoreCall
from loaders.store.error_table import store_error

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from loaders.store.base import Body, Condition, ObjectStore

Answer = TypeVar("Answer")


class Lie(Enum):
    """What may be untrue of one request; `LyingStore` has the table."""

    EMPTY_PAGE = auto()
    SHORT_PAGE = auto()
    START_AFTER_IGNORED = auto()
    NO_WAY_ON = auto()
    PAGE_AGAIN = auto()
    KEY_OUTSIDE = auto()
    KEYS_ENCODED = auto()
    BATCH_REFUSED = auto()
    KEY_REFUSED = auto()
    CONDITION_DROPPED = auto()
    MARK_LOST = auto()
    WEAK_ETAG = auto()
    COMPLETION_UNKNOWN = auto()

    def hits(self, call: StoreCall) -> bool:
        """Whether this lie can occur in such a request."""
        if self is Lie.CONDITION_DROPPED:
            return call.conditional
        return call.operation in _OPERATIONS.get(self, {"list"})


_OPERATIONS = {
    Lie.BATCH_REFUSED: {"delete_many"},
    Lie.KEY_REFUSED: {"delete_many"},
    Lie.MARK_LOST: {"put"},
    Lie.COMPLETION_UNKNOWN: {"complete"},
    Lie.WEAK_ETAG: GETS | {"put", "complete"},
}
_LIES_OF_PUTS = {Lie.CONDITION_DROPPED, Lie.MARK_LOST}
_AFTER, _AFTER_NOTHING = "after:", "went on after:"


class LyingStore(DecoratedStore):
    """Answers untruly about the inner store. Safe for many threads; repeatable if one thread sends requests.

    | lie                 | in                 | what happens                                   | what the caller sees |
    |---------------------|--------------------|------------------------------------------------|----------------------|
    | EMPTY_PAGE          | listings           | a page without keys, and a token               | the whole listing    |
    | SHORT_PAGE          | listings           | fewer keys than asked for, and a token         | the whole listing    |
    | START_AFTER_IGNORED | listings           | the listing from its beginning on              | the whole listing    |
    | NO_WAY_ON           | listings           | "more" without a key and without a token       | RequestRefused       |
    | PAGE_AGAIN          | pages after one    | the first page in place of a later one         | RequestRefused       |
    | KEY_OUTSIDE         | with a prefix      | a key that does not begin with it              | RequestRefused       |
    | KEYS_ENCODED        | with "/" in it     | keys are percent-encoded                       | RequestRefused       |
    | BATCH_REFUSED       | delete_many        | nothing is deleted; 400 MissingContentMD5      | deleted one by one   |
    | KEY_REFUSED         | delete_many        | one key stays, the others are deleted          | one failure          |
    | CONDITION_DROPPED   | conditional writes | written, whether the condition holds or not    | success              |
    | MARK_LOST           | puts with a mark   | written without its metadata                   | success              |
    | WEAK_ETAG           | gets, puts         | the ETag is W/"etag", which never matches      | that ETag            |
    | COMPLETION_UNKNOWN  | complete           | done; 404 NoSuchUpload, as if sent again       | RequestRefused       |

    Args:
        store: the inner store; its pages have no tokens, as those of `MemoryStore`.
        rng: decides by `probabilities`; one draw for each request in which any of them can occur.
        probabilities: of each lie in a request in which it can occur; together at most 1.

    Attributes:
        is_lying: set to False, it is an honest store.
    """

    def __init__(self, store: ObjectStore, rng: random.Random, probabilities: Mapping[Lie, float]) -> None:
        super().__init__(store)
        self.is_lying = True
        self._rng = rng
        self._chances = Chances(rng, probabilities)
        self._lock = ProcessLock()
        self._injected: Counter[Lie] = Counter()

    @property
    def injected(self) -> Counter[Lie]:
        """The number of occurrences of each lie."""
        with self._lock:
            return Counter(self._injected)

    def list_page(
        self, prefix: str, start_after: str = "", limit: int = LIST_PAGE_KEYS_MAX, token: str = ""
    ) -> ListPage:
        """See `ObjectStore.list_page`."""
        after = token.removeprefix(_AFTER).removeprefix(_AFTER_NOTHING) if token else start_after
        lie = self._lie(StoreCall("list", prefix), lambda each: _fits(each, prefix, start_after, token))
        if lie is Lie.NO_WAY_ON:
            return ListPage([], more=True)
        if lie is Lie.EMPTY_PAGE:
            return ListPage([], more=True, token=_AFTER_NOTHING + after)
        page = super().list_page(prefix, "" if lie in {Lie.START_AFTER_IGNORED, Lie.PAGE_AGAIN} else after, limit)
        objects = [*page.objects]
        if lie is Lie.SHORT_PAGE and len(objects) > 1:
            objects = objects[: self._rng.randrange(1, len(objects))]
        is_cut = page.more or len(objects) < len(page.objects)
        going_on = _AFTER + objects[-1].key if is_cut and objects else ""
        if lie is Lie.KEY_OUTSIDE:
            objects.append(ObjectInfo("~another's", 1, "etag", 1.0))
        if lie is Lie.KEYS_ENCODED:
            objects = [replace(info, key=quote(info.key, safe="")) for info in objects]
        return ListPage(objects, more=is_cut, token=going_on)

    def put(self, key: str, body: Body, *, condition: Condition = ALWAYS, mark: str | None = None) -> str:
        """See `ObjectStore.put`."""
        call = StoreCall("put", key, len(body), conditional=condition is not ALWAYS)
        lie = self._lie(call, lambda each: each in _LIES_OF_PUTS and (mark is not None or each is not Lie.MARK_LOST))
        written = ALWAYS if lie is Lie.CONDITION_DROPPED else condition
        return super().put(key, body, condition=written, mark=None if lie is Lie.MARK_LOST else mark)

    def get_if_changed(self, key: str, etag: str, *, size_bytes_max: int | None = None) -> Fetched | None:
        """See `ObjectStore.get_if_changed`: If-None-Match compares weakly."""
        return super().get_if_changed(key, etag.removeprefix("W/").strip('"'), size_bytes_max=size_bytes_max)

    def _delete_batch(self, keys: Sequence[str]) -> DeleteFailures:
        lie = self._lie(StoreCall("delete_many", keys[0]), lambda _: True)
        if lie is Lie.BATCH_REFUSED:
            raise store_error("delete_many", keys[0], "injected", code="MissingContentMD5", status=400)
        if lie is not Lie.KEY_REFUSED:
            return super()._delete_batch(keys)
        held = self._rng.choice(keys)
        rest = [key for key in keys if key != held]
        failure = DeleteFailure(held, store_error("delete_many", held, "injected", code="AccessDenied", status=403))
        return [failure, *(super()._delete_batch(rest) if rest else [])]

    def _around(self, call: StoreCall, send: Callable[[], Answer]) -> Answer:
        answer = send()
        lie = self._lie(call, lambda each: each in {Lie.WEAK_ETAG, Lie.COMPLETION_UNKNOWN})
        if lie is Lie.COMPLETION_UNKNOWN:
            raise store_error("complete", call.key, "injected", code="NoSuchUpload", status=404)
        return cast("Answer", _weak(answer)) if lie is Lie.WEAK_ETAG else answer

    def _lie(self, call: StoreCall, is_possible: Callable[[Lie], bool]) -> Lie | None:
        with self._lock:
            if not self.is_lying:
                return None
            lie = self._chances.drawn(lambda each: each.hits(call) and is_possible(each))
            if lie is not None:
                self._injected[lie] += 1
        return lie


def _fits(lie: Lie, prefix: str, start_after: str, token: str) -> bool:
    """Whether a lie about a listing can be one about this page."""
    if lie is Lie.EMPTY_PAGE:
        return not token.startswith(_AFTER_NOTHING)  # else the listing would not go on
    if lie is Lie.START_AFTER_IGNORED:
        return bool(start_after) and not token
    if lie is Lie.PAGE_AGAIN:
        return token.startswith(_AFTER)
    if lie in {Lie.KEY_OUTSIDE, Lie.KEYS_ENCODED}:
        return "/" in prefix
    return True


def _weak(answer: Any) -> Any:
    if isinstance(answer, str):
        return f'W/"{answer}"'
    return replace(answer, etag=f'W/"{answer.etag}"') if isinstance(answer, Fetched) else answer
