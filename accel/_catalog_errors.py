"""What the object catalog raises; `accel.errors` exports it and has the whole tree."""

from __future__ import annotations

from typing import Any

from loaders.errors import AccelError


class CatalogError(AccelError):
    """The object catalog could not do what was asked."""


class CatalogMissing(CatalogError):
    """No catalog lies at this place."""

    advice = "check bucket and prefix; accel catalog init makes a new one"


class CatalogDamaged(CatalogError):
    """A key that must be there is gone, or holds less than what is known to have stood there; nothing was written.

    Going on would give out ids twice, or begin anew beside objects that were acknowledged.
    """

    advice = (
        "stop accel catalog gc and the writers, and put the key that the message names back from the bucket's versions "
        "or a backup (docs/catalog.md, 'A key that was lost'; docs/operations.md, 'A key that is damaged or gone'); "
        "then run accel catalog verify, and accel catalog restored if a counter is gone or an older version came back"
    )


class CatalogWentBack(CatalogError):
    """A key of the catalog holds an earlier version than was read from it before, or another history.

    Args:
        where: the key.
        seen: sequence number and nonce that were read before.
        found: those of what stands there now; None if nothing does.
    """

    advice = (
        "the bucket or this key was put back from a copy: stop writers, and see 'A bucket that was put back' in "
        "docs/operations.md; accel catalog restored lets readers go on with what is there now"
    )

    def __init__(self, where: str, seen: tuple[int, bytes], found: tuple[int, bytes] | None) -> None:
        now = "nothing" if found is None else f"version {found[0]} ({found[1].hex()})"
        super().__init__(
            f"{where}: expected version {seen[0]} ({seen[1].hex()}), which was read before, or one that follows it, "
            f"found {now}"
        )
        self.where = where
        self.seen = seen
        self.found = found

    def __reduce__(self) -> tuple[type[CatalogWentBack], tuple[str, tuple[int, bytes], tuple[int, bytes] | None]]:
        return type(self), (self.where, self.seen, self.found)


class CommitRefused(CatalogError):
    """A commit contradicts what the catalog holds; nothing was written."""

    advice = "do not repeat it: the message says what was expected; objects that it would have added are not listed"


class SessionFenced(CatalogError):
    """A newer session was opened for this node; this one may not commit any more."""

    advice = "stop this writer; if it is the one that should live, open the node again"


class MaintenanceRefused(CatalogError):
    """Deleting, undoing or importing would not be safe as things stand; nothing was changed."""

    advice = "nothing was changed; the message says what was expected: look at that before anything is forced"


class MaintenanceStopped(CatalogError):
    """A collection ended half-way: what it had done by then stands, and its journals tell of it.

    Args:
        message: how far it came, and why no further.
        report: the same as data: an `accel.catalog.collect.CollectionReport`.
    """

    advice = "nothing that was deleted comes back, and nothing that is needed was; look at the reason, then start again"

    def __init__(self, message: str, report: Any) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[type[MaintenanceStopped], tuple[str, Any]]:
        return type(self), (str(self), self.report)
