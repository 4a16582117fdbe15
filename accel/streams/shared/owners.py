"""Owners of segments: the nodes that write, their addresses and leases, and requests to other owners.

    owners = OwnersTable(catalog)
    with owners.register(address="http://10.0.0.7:8080") as registration:      # chooses a node id
        host = ObjectSegments(catalog, store, registration.node_id)
        registration.keep_alive()

Each owner has one key, ``owners/<node>``, with an `Owner` as its value. An owner registers, renews the key while it
runs, and ends its lease when it stops; all by conditional writes, so if two processes use one node id, the replaced
process gets an error (`OwnerReplaced`).

**A lease decides when another process may try a takeover, not which process may write.** The node's list and the ranges
of its streams decide whether a commit counts (`accel.catalog.takeover`). So if a lease is read with a wrong clock, or a
paused process relies on an expired lease, the only cost is that segments move between owners; and clocks get no
tolerance: a dead owner is found when its lease expires, not a minute later.

**Node ids.** A process with a fixed name, for example a broker, passes its node id, and takes the key over from the
earlier process: it is the same node, restarted. For a process without a node id one is chosen: the id with the oldest
expired lease among owners with chosen ids, otherwise an id above all ids of the catalog and this table. So the number
of node lists in the catalog does not grow with each new process. The session that is opened for a node id that was
taken over fences the older session, and takes over its segments.

Requests: registering 1 GET and 1 PUT with a node id; without a node id 1 listing, 1 GET for each owner, 1 for the
directory, and 1 PUT. Renewing 1 PUT, every third of the lease. `find` 1 GET; `owners` 1 listing and 1 GET for each
owner.

Source: docs/decisions/0015-owners-and-scaling.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Lock
from typing import Annotated, Final
from weakref import WeakValueDictionary, ref

from msgspec import Meta

from accel.catalog import ObjectCatalog
from accel.catalog.keys import node_key, parse_node_key
from accel.catalog.parts import CatalogParts
from accel.errors import (
    AccelError,
    CatalogDamaged,
    CatalogWentBack,
    InvalidArgument,
    OwnerReplaced,
)
from accel.streams.settings import OWNER_LEASE_SECONDS_MAX, ForwardingSettings
from accel.system import Components
from loaders.errors import DataConflict, TableMissing
from loaders.lifetime import Closing, Lifetime
from loaders.settings import CLOCK_SKEW_SECONDS_MAX
from loaders.tables import RecordForm, TypedKey
from loaders.threads import map_bounded
from loaders.versions import Versioned

OWNERS: Final = "owners"
"""The name of the table, which is created when the first owner registers."""

ADDRESS_SIZE_MAX: Final = 2_000
TOKEN_SIZE_BYTES: Final = 16
OWNER_SIZE_BYTES_MAX: Final = 1 << 14
DRAWS_MAX: Final = 100
"""How many node ids are tried, if other processes choose ids at the same time."""

NODE_IDS_FROM: Final = 1
"""The first id that is chosen in an empty catalog."""

MILLISECONDS: Final = 1000

_SKEW_MS_MAX: Final = int(CLOCK_SKEW_SECONDS_MAX * MILLISECONDS)
_LEASE_MS_MAX: Final = int(OWNER_LEASE_SECONDS_MAX * MILLISECONDS) + _SKEW_MS_MAX
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owner:
    """The stored record of an owner. Threads: immutable.

    Args:
        node_id: the node of the owner's session.
        token: 16 bytes that distinguish this process from earlier processes with the same node id.
        address: the URL at which it takes events of other processes; empty = none.
        expires_ms: the end of its lease, milliseconds since 1970 by its clock; 0 = it has ended.
        is_drawn: whether the node id was chosen automatically, so that others may take it over when it has expired.

    Raises:
        ValueError: a number below 0, a token of another size, or an address of more than 2,000 characters.
    """

    node_id: int
    token: bytes
    address: Annotated[str, Meta(max_length=ADDRESS_SIZE_MAX)] = ""
    expires_ms: int = 0
    is_drawn: bool = False

    def __post_init__(self) -> None:
        if self.node_id < 0 or self.expires_ms < 0:
            raise ValueError(f"expected numbers of at least 0, found {self.node_id} and {self.expires_ms}")
        if len(self.token) != TOKEN_SIZE_BYTES or len(self.address) > ADDRESS_SIZE_MAX:
            raise ValueError(f"expected a token of {TOKEN_SIZE_BYTES} bytes and an address of at most 2,000 characters")

    def is_expired(self, now_ms: int) -> bool:
        """Whether its lease has expired at this time: then others may try to take its segments over.

        So has one that ends later than any lease can: a process with a wrong clock wrote it, and may be dead.
        """
        return now_ms >= self.expires_ms or self.expires_ms - now_ms > _LEASE_MS_MAX


OWNER: Final = RecordForm("segment-owner", 1, Owner)


class OwnersTable:
    """The owners of one catalog. Threads: any; no lock is held over I/O.

    Args:
        catalog: the catalog, whose tables and system are used.
        settings: the settings of owners that register by this object.
    """

    def __init__(
        self,
        catalog: ObjectCatalog,
        *,
        settings: ForwardingSettings | None = None,
    ) -> None:
        self._catalog = catalog
        self.settings = settings or ForwardingSettings()

    def now_ms(self) -> int:
        """Return milliseconds since 1970, by the clock to which leases are compared."""
        return self._catalog.parts.now_ms()

    def find(self, node_id: int) -> Owner | None:
        """Return the record of an owner; None if the node never registered. 1 request."""
        try:
            seen = _key(self._catalog.parts, node_id).read()
        except TableMissing:
            return None
        return None if seen is None else seen.value

    def owners(self) -> tuple[Owner, ...]:
        """Return all owners that ever registered, ascending by node id. 1 request for 1,000 owners, and 1 for each."""
        return tuple(seen.value for seen in self._all())

    def register(self, node_id: int | None = None, *, address: str = "") -> Registration:
        """Register this process as an owner. May be repeated after a failure.

        Args:
            node_id: the node id of this process, even if another process had it before; None = an id is chosen.
            address: the URL at which this process takes events of others, at most 2,000 characters.

        Raises:
            InvalidArgument: an address that is too long, or an invalid node id.
            AmbiguousWrite, StoreError, DataConflict: the registration may have been written.
        """
        if len(address) > ADDRESS_SIZE_MAX or (node_id is not None and not 0 <= node_id < 10**10):
            raise InvalidArgument("expected a node id of 0 to 9,999,999,999 and an address of at most 2,000 characters")
        self._catalog.parts.keys.tables.create_table(OWNERS)
        parts = self._catalog.parts
        wanted = Owner(0, parts.system.nonce(), address, self._expires_ms(), is_drawn=node_id is None)
        if node_id is not None:
            owner = replace(wanted, node_id=node_id)
            seen = _key(parts, node_id).change(lambda now: None if now == owner else owner)
        else:
            seen = self._drawn(parts, wanted)
        # Of the parts, not of the catalog: if that was closed meanwhile, the lease is written, and its end needs a key.
        return Registration(self, _key(parts, seen.value.node_id), seen, parts.system)

    def _expires_ms(self) -> int:
        return self.now_ms() + int(self.settings.lease_seconds * MILLISECONDS)

    def _drawn(self, parts: CatalogParts, wanted: Owner) -> Versioned[Owner]:
        """Register with a chosen node id: the id of a dead owner, or a new one."""
        known = self._all()
        dead = [seen for seen in known if seen.value.is_drawn and seen.value.is_expired(self.now_ms())]
        for seen in sorted(dead, key=lambda seen: seen.value.expires_ms):
            node_id = seen.value.node_id
            try:
                return _key(parts, node_id).write(replace(wanted, node_id=node_id), seen)
            except DataConflict:
                continue  # another process took it over, or its owner renewed
        node_ids = [seen.value.node_id for seen in known]
        directory = parts.keys.directory().get().value
        first = max([NODE_IDS_FROM - 1, *node_ids, *directory.node_ids.tolist()]) + 1
        for node_id in range(first, first + DRAWS_MAX):
            owner = replace(wanted, node_id=node_id)
            seen = _key(parts, node_id).create_if_absent(owner)
            if seen.value == owner:
                return seen
        raise DataConflict(OWNERS, node_key(first), f"expected a node id that no owner has, found {DRAWS_MAX} taken")

    def _all(self) -> list[Versioned[Owner]]:
        parts = self._catalog.parts
        try:
            node_ids = [parse_node_key(key) for key in parts.keys.tables.table(OWNERS).keys()]  # noqa: SIM118 - no dict
        except TableMissing:
            return []
        known = [each for each in node_ids if each is not None]
        seen = map_bounded(parts.executor, lambda each: _key(parts, each).read(), known)
        return [each for each in seen if each is not None]


def _key(parts: CatalogParts, node_id: int) -> TypedKey[Owner]:
    table = parts.keys.tables.table(OWNERS, value_size_bytes_max=OWNER_SIZE_BYTES_MAX)
    return TypedKey(table, node_key(node_id), OWNER, went_back=parts.keys.note_back)


class Registration(Closing):
    """The registration of this process as an owner; `OwnersTable.register` makes it.

    Threads: any; one renewal is made at a time. The registration belongs to the process that registered: elsewhere its
    calls raise WrongProcess.

    Args:
        owners: the table of owners.
        key: the owner's key in the table.
        seen: the value of the key.
        system: clock, threads.

    Attributes:
        node_id: the node.
    """

    def __init__(self, owners: OwnersTable, key: TypedKey[Owner], seen: Versioned[Owner], system: Components) -> None:
        self._lifetime = Lifetime(f"registration of node {seen.value.node_id}", system.process_id)
        self._owners, self._key, self._system = owners, key, system
        self._lock = Lock()  # guards the attributes below; never held over a request
        self._seen = seen
        self._stopped = Event()
        self.node_id = seen.value.node_id
        _HERE[seen.value.token] = self

    def _end_block(self, error: BaseException | None) -> None:
        if error is None:
            self.end()
        else:
            self.stop()

    def __repr__(self) -> str:
        return f"Registration({self.owner!r})"

    @property
    def is_here(self) -> bool:
        """Whether this process registered."""
        return self._lifetime.is_here

    @property
    def owner(self) -> Owner:
        """The record of this process, as last written."""
        with self._lock:
            return self._seen.value

    def is_due(self) -> bool:
        """Whether a third of the lease has passed."""
        left_ms = self.owner.expires_ms - self._owners.now_ms()
        lease_ms = self._owners.settings.lease_seconds * MILLISECONDS
        return left_ms <= lease_ms * 2 / 3 or left_ms > lease_ms + _SKEW_MS_MAX

    def renew(self) -> Owner:
        """Renew the lease. Usually 1 request.

        Raises:
            OwnerReplaced: another process has registered for the node.
            CatalogWentBack: the record was deleted, or put back from a copy; the sessions of this process have ended.
            StoreError, AmbiguousWrite, DataConflict: the lease may not be renewed; call again.
        """
        expires_ms = self._owners.now_ms() + int(self._owners.settings.lease_seconds * MILLISECONDS)

        def renewed(now: Owner) -> Owner:
            if now.expires_ms == 0 and self._stopped.is_set():
                return now  # it has ended while this renewal was under way
            is_wrong = now.expires_ms - expires_ms > _SKEW_MS_MAX  # written when the clock was wrong
            return replace(now, expires_ms=expires_ms if is_wrong else max(expires_ms, now.expires_ms))

        return self._tell(renewed)

    def keep_alive(self) -> None:
        """Renew from now on, in a thread that does not keep the process alive, until `end` or `stop`.

        Errors are logged, and renewing is tried again; the thread ends when another process has registered for the
        node, or the record went back. Without a `wait` of the system (simulated time) there is no thread: the caller
        renews when it is due.
        """
        self._lifetime.check()
        if self._system.wait is not None:
            pause = partial(self._system.wait, self._stopped, self._owners.settings.lease_seconds / 3)
            self._system.start(partial(_renew_again, ref(self), self._stopped, pause), f"accel-owner-{self.node_id}")

    def end(self) -> None:
        """End the lease of this process: others may take its segments over at once. 1 request.

        Raises:
            As `renew`, except `OwnerReplaced`.
        """
        self.stop()
        try:
            self._tell(lambda now: replace(now, expires_ms=0))
        except OwnerReplaced:
            logger.debug("node %d: registered by another process", self.node_id)

    def stop(self) -> None:
        """Stop renewing, without a request: the lease expires."""
        self._stopped.set()

    def _tell(self, change: Callable[[Owner], Owner]) -> Owner:
        self._lifetime.check()
        with self._lock:
            seen = self._seen
        token = seen.value.token

        def rule(now: Owner | None) -> Owner | None:
            if now is None:
                raise CatalogDamaged(f"expected an owner in {self._key.where}, found none: it was deleted")
            if now.token != token:
                raise OwnerReplaced(self.node_id)
            return change(now)

        told = self._key.change(rule, seen=seen)
        with self._lock:
            if told.version.sequence >= self._seen.version.sequence:
                self._seen = told
            return self._seen.value

    def _is_renewed(self) -> bool:
        """Renew, and log errors; returns whether to renew again."""
        try:
            self.renew()
        except (OwnerReplaced, CatalogWentBack) as error:
            logger.warning("node %d: its lease is not renewed any more: %s", self.node_id, error)
            return False
        except AccelError as error:
            logger.warning("node %d: its lease could not be renewed: %s", self.node_id, error)
        return True


def _renew_again(registration: ref[Registration], stopped: Event, pause: Callable[[], object]) -> None:
    while True:
        pause()
        held = registration()  # only while it renews: a registration that was dropped is not renewed
        if stopped.is_set() or held is None or not held._is_renewed():  # noqa: SLF001 - its thread
            return
        del held


_HERE: Final[WeakValueDictionary[bytes, Registration]] = WeakValueDictionary()
"""The registrations of this process, by token."""


def is_registered_here(owner: Owner) -> bool:
    """Whether an owner is a registration of this process."""
    here = _HERE.get(owner.token)
    return here is not None and here.is_here
