"""The host holds the segments themselves; the caller passes it in, as brokers differ.

A history records which segments exist; a host creates, seals, truncates and deletes them, and merges transactions into
them. Every step of a workflow may be repeated, by another process too. So a host must accept each order twice: a
segment that is already created, sealed or merged remains unchanged.

Threads: a host must be as safe as its users need; any thread may use both hosts of this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from accel.errors import HostMissing
from accel.history.rules.segments import Segments
from accel.history.rules.values import IdMap, Integers, checked_numbers

StreamName = tuple[str, str]
"""Scope and stream."""


class SegmentHost(Protocol):
    """What workflows ask of those who hold segments. All sizes and offsets are in the stream's offset unit.

    An order may come twice, from several processes, and an hour late: after the segment was sealed, truncated or
    deleted by workflows that came later. A host then leaves everything as it is: what is sealed stays sealed, what is
    deleted is not created again, a transaction that was merged, or aborted, is not merged again.
    """

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Create segments; each is bound to a stream of the object layer."""
        ...

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """Take no more writes; gives the final sizes by segment id."""
        ...

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """How far segments reach now, by segment id."""
        ...

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """Forget what lies before the offsets of a cut; those below 0 say nothing."""
        ...

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """Forget segments."""
        ...

    def merge(
        self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]
    ) -> Mapping[UUID, Mapping[int, int]] | None:
        """Append the data of transactions to segments, in this order, each once.

        Returns:
            Where the data of each begins, by segment id, as far as the host tells: the same when it is asked again, or
            nothing. What it tells is noted in the transaction's record, for 2 calls a transaction.
        """
        ...

    def abort(self, stream: StreamName, transaction: UUID) -> None:
        """Forget the data of a transaction."""
        ...


class NoHost:
    """In the place of a host where there is none: the history can be read, and asked for changes.

    A segment whose writer goes on must not be sealed, merged into, truncated or deleted by a process that knows nothing
    of its data: its size would be recorded as 0, and a transaction as committed whose data is nowhere.
    """

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Nothing to do: the process that first appends to a segment opens it."""

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - refused in any case
        """Raises HostMissing."""
        raise HostMissing("seal segments", "/".join(stream))

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("find the ends of segments", "/".join(stream))

    def truncate(self, stream: StreamName, cut: IdMap) -> None:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("truncate segments", "/".join(stream))

    def delete(self, stream: StreamName, ids: Integers) -> None:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("delete segments", "/".join(stream))

    def merge(self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]) -> None:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("merge transactions", "/".join(stream))

    def abort(self, stream: StreamName, transaction: UUID) -> None:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("delete the data of transactions", "/".join(stream))


class GivenSizes:
    """Holds nothing: the caller does, and says how large segments are when they are sealed.

    Args:
        sizes: by segment id; those that are missing count 0.
    """

    def __init__(self, sizes: Mapping[int, int] | None = None) -> None:
        self._sizes = dict(checked_numbers("sizes of segments", sizes or {}, 0))

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Nothing to do."""

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """The sizes that were given."""
        return self.tails(stream, ids)

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - sizes of one stream
        """The sizes that were given."""
        return {segment_id: self._sizes.get(segment_id, 0) for segment_id in ids.tolist()}

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """Nothing to do."""

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """Nothing to do."""

    def merge(self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]) -> None:
        """Nothing to do."""

    def abort(self, stream: StreamName, transaction: UUID) -> None:
        """Nothing to do."""
