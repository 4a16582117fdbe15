"""The host holds the segments themselves; the caller passes it in, as brokers differ.

A history records which segments exist; a host creates, seals, truncates and deletes them, and merges transactions into
them. Every step of a workflow may be repeated, by another process too. So a host must accept each call twice: a segment
that is already created, sealed or merged remains unchanged.

Threads: a host must be as thread-safe as its users need; any thread may use those of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from accel.errors import HostMissing
from accel.history.rules.segments import Segments
from accel.history.rules.values import IdMap, Integers, checked_numbers

StreamName = tuple[str, str]
"""Scope and stream."""


class SegmentHost(Protocol):
    """Operations on segments that workflows need. All sizes and offsets are in the stream's offset unit.

    A host may receive a call twice, from several processes, and an hour late: after later workflows sealed, truncated
    or deleted the segment. The host then changes nothing: a sealed segment stays sealed, a deleted segment is not
    created again, and a transaction that was merged or aborted is not merged again.
    """

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Create segments; each is bound to a stream of the object layer."""
        ...

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """Let segments take no more writes; return their final sizes by segment id."""
        ...

    def last_times(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """Times of the last events of sealed segments by segment id, milliseconds since 1970; at least the true ones.

        A missing segment has no events, or the host does not know their times: then a search of this stream by time
        relies on the times of its epochs alone.
        """
        ...

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """Present sizes of segments, by segment id, by the newest metadata; segments of unknown size are left out.

        Workflows ask for the ends before they take a stream, so that a position beyond an end is refused.
        """
        ...

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """Delete the data before the offsets of a cut; offsets below 0 are ignored."""
        ...

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """Delete segments."""
        ...

    def merge(
        self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]
    ) -> Mapping[UUID, Mapping[int, int]] | None:
        """Append the data of transactions to segments, in this order, each once.

        Returns:
            Start offsets of the data of each transaction, by segment id, or None if the host does not report them; a
            repeated call returns the same or nothing. The offsets are stored in the transaction's record, for 2 calls
            a transaction.
        """
        ...

    def abort(self, stream: StreamName, transaction: UUID, *, is_given_up: bool = False) -> None:
        """Delete the data of a transaction.

        Args:
            stream: its stream.
            transaction: its id.
            is_given_up: whether its commit was decided before: then a merge may be under way.

        Raises:
            OperationNotAllowed: a merge of it may be under way; nothing was deleted.
        """
        ...


class NoHost:
    """Stands in for a missing host: the process reads the history and requests changes.

    A process without a segment's data must not seal, truncate or delete the segment, or merge transactions into it,
    while another process writes to it: the recorded size would be 0, and a committed transaction would have no data.
    """

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Does nothing: the process that first appends to a segment opens it."""

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - refused in any case
        """Raises HostMissing."""
        raise HostMissing("seal segments", "/".join(stream))

    def last_times(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("find the last events of segments", "/".join(stream))

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

    def abort(self, stream: StreamName, transaction: UUID, *, is_given_up: bool = False) -> None:  # noqa: ARG002 - as above
        """Raises HostMissing."""
        raise HostMissing("delete the data of transactions", "/".join(stream))


class GivenSizes:
    """A host without data: the caller holds the segments, and passes their final sizes in.

    Args:
        sizes: sizes by segment id; a missing segment is sealed with size 0, and its end is unknown.
        refuse: called with the stream and the operation before a workflow begins; it raises if the caller is wrong, and
            the data is where only another host reaches it. See `segment_directory.refuse_data_here`.
    """

    def __init__(
        self, sizes: Mapping[int, int] | None = None, refuse: Callable[[StreamName, str], None] | None = None
    ) -> None:
        self._sizes = dict(checked_numbers("sizes of segments", sizes or {}, 0))
        self._refuse = refuse

    def refuse_data(self, stream: StreamName, what: str) -> None:
        """Refuse an operation on segments whose data the caller does not hold."""
        if self._refuse is not None:
            self._refuse(stream, what)

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Does nothing."""

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """The sizes that the caller passed in; 0 for other segments."""
        return {**dict.fromkeys(ids.tolist(), 0), **self.tails(stream, ids)}

    def last_times(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - it has no events
        """None are known."""
        return {}

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:  # noqa: ARG002 - sizes of one stream
        """The sizes that the caller passed in."""
        return {segment_id: self._sizes[segment_id] for segment_id in ids.tolist() if segment_id in self._sizes}

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """Does nothing."""

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """Does nothing."""

    def merge(self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]) -> None:
        """Does nothing."""

    def abort(self, stream: StreamName, transaction: UUID, *, is_given_up: bool = False) -> None:
        """Does nothing."""


class HostWhenNeeded:
    """A host that the first call that needs it opens; creating segments opens none. Threads: any.

    Args:
        opened: opens the host, or returns it.
        tails: returns what the host's `tails` returns, and opens none, so that a check of a cut needs no session.
    """

    def __init__(
        self, opened: Callable[[], SegmentHost], tails: Callable[[StreamName, Integers], Mapping[int, int]]
    ) -> None:
        self._opened = opened
        self._tails = tails

    def create(self, stream: StreamName, segments: Segments, stream_ids: Mapping[int, int]) -> None:
        """Nothing to do: the node that first writes a segment opens it."""

    def seal(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.seal`."""
        return self._opened().seal(stream, ids)

    def last_times(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.last_times`."""
        return self._opened().last_times(stream, ids)

    def tails(self, stream: StreamName, ids: Integers) -> Mapping[int, int]:
        """See `SegmentHost.tails`."""
        return self._tails(stream, ids)

    def truncate(self, stream: StreamName, cut: IdMap) -> None:
        """See `SegmentHost.truncate`."""
        self._opened().truncate(stream, cut)

    def delete(self, stream: StreamName, ids: Integers) -> None:
        """See `SegmentHost.delete`."""
        self._opened().delete(stream, ids)

    def merge(
        self, stream: StreamName, ids: Integers, transactions: Sequence[UUID]
    ) -> Mapping[UUID, Mapping[int, int]] | None:
        """See `SegmentHost.merge`."""
        return self._opened().merge(stream, ids, transactions)

    def abort(self, stream: StreamName, transaction: UUID, *, is_given_up: bool = False) -> None:
        """See `SegmentHost.abort`."""
        self._opened().abort(stream, transaction, is_given_up=is_given_up)
