"""Readers of one group in one process, asked in turn; and all that they gave, in the order in which they gave it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar, cast

import pytest

from accel import AsyncGroupReader, Event, GroupReader, ReaderGroup, StreamWriter
from accel.history.rules.segments import SegmentRecord
from accel.streams.group_readers import GroupReaderCounts
from accel.streams.rules.events import EventBatch
from accel.streams.rules.group_state import NO_LEASE, GroupMember, Lease
from accel.streams.rules.settings import ReaderSettings
from accel.streams.rules.shares import Assignment
from accel.streams.segment_source import SegmentSource
from accel.system import SYSTEM, Components
from loaders.errors import StoreUnavailable
from tests.accel.streams.reader.streams import QUICK, Awaited, Shop

Answer = TypeVar("Answer")

WAIT_SECONDS = 0.002
ASKED_IN_VAIN_MAX = 15_000
"""Half a minute at least; nobody waits longer for an image, a retry or a share."""

OFTEN_SECONDS = 0.001
NEVER_SECONDS = 3600.0

IS_CARRIED_OUT = 0.2
"""Of a call with less luck, nothing is done before it fails."""

WORKS = 0.4
"""One with so much luck does not fail."""

for_threads_and_tasks = pytest.mark.parametrize(
    "readers", [GroupReader, AsyncGroupReader], ids=["threads", "tasks"], indirect=True
)


class Shaky(ReaderGroup):
    """A group whose calls fail now and then, some of them though they were carried out; none by default."""

    odds: Iterator[float] = itertools.repeat(WORKS)
    errors = 0

    def join(self, reader: str, lease: Lease = NO_LEASE, *, host: str = "", before: int = 0) -> GroupMember:
        return self._maybe(lambda: super(Shaky, self).join(reader, lease, host=host, before=before))

    def rebalance(self, reader: str, positions: Mapping[int, int], lag: int | None, **more: Any) -> Assignment:
        return self._maybe(lambda: super(Shaky, self).rebalance(reader, positions, lag, **more))

    def finish(
        self, reader: str, segment_id: int, successors: Iterable[SegmentRecord], *, offset: int, session: int = 0
    ) -> None:
        self._maybe(lambda: super(Shaky, self).finish(reader, segment_id, successors, offset=offset, session=session))

    def leave(self, reader: str, positions: Mapping[int, int] | None = None, *, session: int = 0) -> None:
        self._maybe(lambda: super(Shaky, self).leave(reader, positions or {}, session=session))

    def _maybe(self, call: Callable[[], Answer]) -> Answer:
        odds = next(self.odds)
        if odds < IS_CARRIED_OUT:
            self.fail()
        answer = call()
        if odds < WORKS:
            self.fail()
        return answer

    def fail(self) -> None:
        self.errors += 1
        raise StoreUnavailable("put", "somewhere", "out of order")


@dataclass
class Team:
    """Members of a group.

    Attributes:
        shop: has the stream.
        group: that they share.
        kind: of their objects.
        loop: of the objects for asyncio.
        members: who is asked.
        gone: who is not asked any more, without having left.
        given: who gave which event.
    """

    shop: Shop
    group: Shaky
    kind: type[GroupReader | AsyncGroupReader] = GroupReader
    loop: asyncio.Runner = field(default_factory=asyncio.Runner)
    members: dict[str, GroupReader] = field(default_factory=dict)
    gone: list[GroupReader] = field(default_factory=list)
    given: list[tuple[str, Event]] = field(default_factory=list)

    def join(
        self,
        name: str,
        *,
        follow: bool = True,
        every_seconds: float = OFTEN_SECONDS,
        source: SegmentSource | None = None,
        settings: ReaderSettings = QUICK,
        system: Components = SYSTEM,
        lease_seconds: float | None = None,
        auto_commit: bool = True,
        counts: GroupReaderCounts | None = None,
    ) -> GroupReader:
        """A new member, which nobody has asked for anything yet."""
        made = self.kind(
            self.shop.stream,
            self.shop.source() if source is None else source,
            self.group,
            name,
            follow=follow,
            settings=settings,
            rebalance_seconds=every_seconds,
            lease_seconds=lease_seconds,
            auto_commit=auto_commit,
            system=system,
            counts=counts,
        )
        self.members[name] = made if isinstance(made, GroupReader) else cast("GroupReader", Awaited(made, self.loop))
        return self.members[name]

    def leave(self, name: str) -> None:
        """It leaves in good order, and has finished with all that it was given."""
        member = self.members.pop(name)
        member.commit()
        member.close()

    def die(self, name: str) -> None:
        """It is not heard of any more."""
        self.gone.append(self.members.pop(name))

    def keep(self, name: str, batch: EventBatch | None) -> int:
        """Remember what a member gave; tells how many events those are."""
        self.given += [(name, event) for event in batch or ()]
        return len(batch or ())

    def ask(self, name: str) -> int:
        """Ask a member once."""
        return self.keep(name, self.members[name].next_batch(WAIT_SECONDS))

    def until(self, is_enough: Callable[[], bool]) -> None:
        """Ask one after the other until it is enough."""
        in_vain = 0
        while in_vain <= ASKED_IN_VAIN_MAX:
            if is_enough():
                return
            in_vain += max(1, len(self.members))
            for name in list(self.members):
                in_vain = 0 if self.ask(name) else in_vain
        raise AssertionError(f"asked {in_vain} times in vain\n{self.describe()}")

    def describe(self) -> str:
        """How everybody stands."""
        core = {name: member._core for name, member in self.members.items()}
        return "\n".join(
            [
                f"{len(self.given)} of {self.shop.count} events given; image {self.shop.accelerator.image_version}",
                f"the newest image has version {self.shop.catalog.refresh().version}",
                f"the group: {self.group.state()}",
                *(f"{name}: {member.position()}, {member._member}" for name, member in self.members.items()),
                *(f"{name}: {each._buffers}, {each._under_way} under way" for name, each in core.items()),
            ]
        )

    def read(self, count: int) -> None:
        """Until so many events more were given."""
        wanted = len(self.given) + count
        self.until(lambda: len(self.given) >= wanted)

    def read_all(self) -> None:
        """Until as many were given as were written."""
        self.until(lambda: len(self.given) >= self.shop.count)

    def share(self) -> None:
        """Until everybody has a share."""
        self.until(lambda: all(len(member.position()) for member in self.members.values()))

    def take_one(self, name: str) -> None:
        """Ask a member for one event as `next` does, but wait no longer than `ask`; the rest of its batch is left."""
        member = self.members[name]
        if not member._is_open:
            batch = member.next_batch(WAIT_SECONDS)
            if batch is None:
                return
            member._open_batch(batch)
        member._note_asked()
        member._attend()  # this may take the batch away: `next` would wait for another one
        event = member._next_event()
        if event is not None:
            self.given.append((name, event))

    def own(self, name: str) -> list[Event]:
        """What one of them gave."""
        return [event for each, event in self.given if each == name]

    @property
    def events(self) -> Iterator[Event]:
        """What all gave."""
        return (event for _, event in self.given)

    def close(self) -> None:
        """Let everybody leave."""
        for each in (*self.members.values(), *self.gone):
            each.close()
        self.loop.close()


def written(opened: Shop, count: int) -> None:
    """Write so many events of all keys in turn."""
    with StreamWriter(opened.stream, opened.host) as writer:
        opened.write(writer, count)


def one_batch(opened: Shop, *payloads: bytes) -> None:
    """Write events of one key that are appended together."""
    with StreamWriter(opened.stream, opened.host) as writer:
        writer.write_many((payload, "one key") for payload in payloads)
        opened.flush(writer)


def scale(opened: Shop, random: Random) -> None:
    """Split a segment, or merge two."""
    count = len(opened.stream.active_segments())
    if count > 1 and random.random() < 0.5:
        opened.merge()
    else:
        opened.split(random.randrange(count))


@contextmanager
def team(shop: Shop, kind: type[GroupReader | AsyncGroupReader] = GroupReader) -> Iterator[Team]:
    """A team without members yet, in a new group."""
    group = Shaky.open(shop.stream, "team")
    assert isinstance(group, Shaky)
    made = Team(shop, group, kind)
    try:
        yield made
    finally:
        made.close()
