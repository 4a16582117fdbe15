"""Nothing of what was asked for lies where the user pointed: what lies there instead, and in the bucket around it.

A wrong prefix and a wrong namespace look like lost objects to a lookup, and like an empty bucket to an import. Two
listings of one page tell them apart, so that nobody restores what was never lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from accel.cli.options import StoreChoice, required_url
from accel.errors import AccelError, ObjectLost, WrongPlace
from accel.rendering import printable
from loaders.errors import redacted
from loaders.layout import ACCEL_PREFIX, ObjectLayout
from loaders.store import ObjectStore
from loaders.store.base import LIST_PAGE_KEYS_MAX

_OBJECT_KEY = re.compile(r"(?:(?P<prefix>.+)/)?[0-9a-f]{8,16}/(?P<namespace>[^/]+)/[0-9]+")
SHOWN_MAX = 5

Found = Counter[tuple[str, str]]
"""How many objects there are of each (prefix, namespace)."""


def look_around(store: ObjectStore) -> tuple[Found, int]:
    """Which objects are among the first 1,000 keys, and how many other keys. One request."""
    found: Found = Counter()
    others = 0
    for info in store.list_page("", limit=LIST_PAGE_KEYS_MAX).objects:
        match = _OBJECT_KEY.fullmatch(info.key)
        place = None if match is None else (match["prefix"] or "", match["namespace"])
        if place is not None and f"/{info.key}".find(f"/{ACCEL_PREFIX}") < 0:
            found[place] += 1
        else:
            others += 1
    return found, others


def found_text(found: Found, others: int) -> str:
    """What lies at a place, in half a sentence."""
    if not found:
        return f"{others} keys that are no objects" if others else "nothing"
    places = [
        f"{count} of namespace {printable(namespace)!r}" + (f" below {printable(prefix)}/" if prefix else "")
        for (prefix, namespace), count in found.most_common(SHOWN_MAX)
    ]
    more = f", and in {len(found) - SHOWN_MAX} more places" if len(found) > SHOWN_MAX else ""
    return f"objects: {', '.join(places)}{more}"


def wrong_place(choice: StoreChoice, layout: ObjectLayout) -> WrongPlace | None:
    """The error that says what lies at the store instead of a namespace's objects; None if some of these do.

    Two requests at most.
    """
    url = required_url(choice.url)
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.strip("/").partition("/")
    found, others = look_around(choice.open())
    if found["", layout.namespace]:
        return None
    parts = [f"there: {found_text(found, others)}"]
    if prefix and not found:
        root = StoreChoice(f"{scheme}://{bucket}", choice.settings, choice.output).open()
        parts.append(f"in the whole bucket: {found_text(*look_around(root))}")
    return WrongPlace(
        f"expected objects of namespace {layout.namespace!r} at {redacted(url)}, "
        f"found none among the first {LIST_PAGE_KEYS_MAX} keys; {'; '.join(parts)}"
    )


@contextmanager
def told_from_lost(choice: StoreChoice, layout: ObjectLayout) -> Iterator[None]:
    """A lost object becomes `WrongPlace` if no object of its namespace lies at the store at all."""
    try:
        yield
    except ObjectLost as error:
        try:
            wrong = wrong_place(choice, layout)
        except AccelError:  # who may not list has the first error, as before
            wrong = None
        if wrong is not None:
            raise wrong from error
        raise
