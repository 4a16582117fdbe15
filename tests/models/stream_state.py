"""A small stream as plain values: what its keys and its host say, and what must be true of them.

Written from docs/explanation/history.md alone; it shares no code with what it judges. Three epochs were before:
segments 0 and 1, then 0 was replaced by 2, and 2 by 3. A segment is (number, epoch of creation). The index of times is
its last epoch that is shown. Each key that only one other key's writer needs stands with that one: see
`test_interleavings`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from tests.models.interleavings import Violated

Segment: TypeAlias = tuple[int, int]
Segments: TypeAlias = tuple[Segment, ...]
Id: TypeAlias = tuple[int, int] | str | None


class Status(NamedTuple):
    """The stream's state, the workflow that has it, and the version."""

    state: str
    owner: Id
    version: int


class Record(NamedTuple):
    """An epoch."""

    segments: Segments
    reference: int


class Plan(NamedTuple):
    """What a workflow is to do.

    Attributes:
        kind: of workflow.
        wish: what was asked for.
        epoch: scale: the active epoch; commit: into which the data goes, or from which it rolls; truncation: the cut.
        new: scale: the segment that comes.
        base: what truncation or configuration named before.
        last: the cut before.
        rolls: whether a commit rolls.
    """

    kind: str
    wish: object
    epoch: int = 0
    new: Segment = (0, 0)
    base: Id = None
    last: int = 0
    rolls: bool = False


class Request(NamedTuple):
    """The request of a workflow."""

    id: Id
    status: str
    base: int
    plan: Plan
    is_kept: bool = False


class Truncation(NamedTuple):
    """Where the stream begins: at the beginning of an epoch."""

    by: Id
    epoch: int
    last: int
    updating: bool


class Stream(NamedTuple):
    """All keys of a stream, and its host."""

    status: Status
    requests: tuple[Request, ...]
    epochs: tuple[Record, ...]
    chunk: tuple[Record, ...]
    current: int
    shown: int
    sealed_in: frozenset[tuple[Segment, int]]
    sizes: frozenset[tuple[Segment, int]]
    truncation: Truncation
    configuration: tuple[object, Id]
    transactions: tuple[tuple[str, str, int], ...]
    order: tuple[str, ...]
    ended: frozenset[tuple[str, str]]
    created: frozenset[Segment]
    deleted: frozenset[Segment]
    merged: tuple[tuple[str, Segments], ...]
    took: frozenset[Id]
    bad: str

    def transaction(self, name: str) -> tuple[str, str, int] | None:
        """A transaction that has not ended: name, status, epoch."""
        return next((each for each in self.transactions if each[0] == name), None)

    def request(self, workflow_id: Id) -> Request | None:
        """A request."""
        return next((each for each in self.requests if each.id == workflow_id), None)

    def with_request(self, request: Request) -> Stream:
        """With a request written."""
        kept = [each for each in self.requests if each.id != request.id]
        return self._replace(requests=tuple(sorted([*kept, request], key=str)))

    def without_request(self, workflow_id: Id) -> Stream:
        """With a request erased."""
        return self._replace(requests=tuple(each for each in self.requests if each.id != workflow_id))

    def with_state(self, state: str, owner: Id = None) -> Stream:
        """With the state written; a workflow that it was taken from must have come to its end."""
        now = self.status
        bad = self.bad
        if now.owner is not None and now.owner != owner and not self.is_carried_out(now.owner):
            bad = f"workflow {now.owner} was ended before it was carried out"
        status = Status(state, owner, now.version + 1)
        return self._replace(status=status, bad=bad, took=self.took | {owner} if owner else self.took)

    def is_carried_out(self, workflow_id: Id) -> bool:
        """Whether all steps of a workflow are done, as its request says; True if that is not known."""
        request = self.request(workflow_id)
        if request is None:
            return True
        plan = request.plan
        return {
            "scale": lambda: self.shown > plan.epoch and self.is_scaled(plan),
            "commit": lambda: (plan.wish, "COMMITTED") in self.ended and self.transaction(str(plan.wish)) is None,
            "truncate": lambda: self.truncation.by == workflow_id and not self.truncation.updating,
            "update": lambda: self.configuration == (plan.wish, workflow_id),
        }[plan.kind]()

    def is_scaled(self, plan: Plan) -> bool:
        """Whether the epoch of a scale has what the scale asks for."""
        segments = self.epochs[plan.epoch + 1].segments
        return plan.new in segments and plan.wish not in segments

    def size(self, segment: Segment) -> int:
        """What was ever written to a segment."""
        return 1 + sum(segment in segments for _, segments in self.merged)

    def told_size(self, segment: Segment) -> int:
        """What the host says of its size; it has forgotten those that were deleted."""
        return 0 if segment in self.deleted else self.size(segment)

    def before(self, epoch: int) -> frozenset[Segment]:
        """The segments that end before an epoch."""
        known = {segment for record in self.epochs[: epoch + 1] for segment in record.segments}
        return frozenset(known - set(self.epochs[epoch].segments))


def three_epochs(**changes: Any) -> Stream:
    """The stream as it is at first."""
    epochs = (Record(((0, 0), (1, 0)), 0), Record(((1, 0), (2, 1)), 1), Record(((1, 0), (3, 2)), 2))
    stream = Stream(
        status=Status("ACTIVE", None, 0),
        requests=(),
        epochs=epochs,
        chunk=epochs,
        current=2,
        shown=2,
        sealed_in=frozenset({((0, 0), 1), ((2, 1), 2)}),
        sizes=frozenset({((0, 0), 1), ((2, 1), 1)}),
        truncation=Truncation(None, 0, 0, updating=False),
        configuration=("old", None),
        transactions=(),
        order=(),
        ended=frozenset(),
        created=frozenset({(0, 0), (1, 0), (2, 1), (3, 2)}),
        deleted=frozenset(),
        merged=(),
        took=frozenset(),
        bad="",
    )
    return stream._replace(**changes)


def check(stream: Stream) -> None:
    """What must be true at any time.

    Raises:
        Violated: it is not.
    """
    if stream.bad:
        raise Violated(stream.bad)
    _check_epochs(stream)
    _check_host(stream)
    _check_transactions(stream)
    for each in stream.requests:
        if each.status == "refused" and each.id in stream.took:
            raise Violated(f"a refused request was carried out: {each}")
    if stream.status.state == "SEALED":
        known = dict(stream.sizes)
        if any(each not in known for each in stream.epochs[stream.current].segments):
            raise Violated("sealed without the sizes of its segments")


def _check_epochs(stream: Stream) -> None:
    now = stream.current + 1
    if len(stream.epochs) < now or stream.chunk[:now] != stream.epochs[:now]:
        raise Violated(f"the current epoch {stream.current} without its records: {stream.epochs}, {stream.chunk}")
    if stream.shown > stream.current:
        raise Violated(f"the index of times shows epoch {stream.shown}, the current one is {stream.current}")
    known = dict(stream.sizes)
    for at in range(1, now):
        for segment in set(stream.epochs[at - 1].segments) - set(stream.epochs[at].segments):
            if (segment, at) not in stream.sealed_in or segment not in known:
                raise Violated(f"segment {segment} was sealed, and its epoch or its size is not known")


def _check_host(stream: Stream) -> None:
    for segment, size in stream.sizes:
        if size != stream.size(segment):
            raise Violated(f"segment {segment} was sealed with size {size}, and has {stream.size(segment)}")
    if stream.created & stream.deleted:
        raise Violated(f"deleted segments are there again: {stream.created & stream.deleted}")
    record = stream.truncation
    beyond = stream.deleted - stream.before(record.epoch)
    missing = stream.before(record.last if record.updating else record.epoch) - stream.deleted
    if beyond or missing:
        raise Violated(f"deleted beyond the truncation: {beyond}; counted as deleted, and still there: {missing}")
    if not set(stream.epochs[stream.current].segments) <= stream.created:
        raise Violated("the current epoch has segments that the host has not")


def _check_transactions(stream: Stream) -> None:
    names = [name for name, _ in stream.merged]
    if len(set(names)) < len(names):
        raise Violated(f"a transaction was merged twice: {stream.merged}")
    told = [name for name, _ in stream.ended]
    if len(set(told)) < len(told):
        raise Violated(f"a transaction ended in two ways: {stream.ended}")
    known = [set(record.segments) for record in stream.epochs[: stream.current + 1]]
    for name, how in stream.ended:
        into = next((set(segments) for each, segments in stream.merged if each == name), None)
        if how == "COMMITTED" and into not in known:
            raise Violated(f"transaction {name} is committed, and no epoch knows its data: {into}")
        if how == "ABORTED" and into is not None:
            raise Violated(f"transaction {name} is aborted, and its data is there")


def check_recovered(stream: Stream) -> None:
    """What must be true besides once nobody is at work, and somebody has recovered the stream.

    Raises:
        Violated: it is not.
    """
    status = stream.status
    if status.state not in ("ACTIVE", "SEALED") or status.owner is not None:
        raise Violated(f"recovered, and {status}")
    for each in stream.requests:
        if each.is_kept and each.status in ("waiting", "claimed"):
            raise Violated(f"recovered, and a request still waits: {each}")
        if not each.is_kept and each.base != status.version:
            raise Violated(f"recovered, and a request without effect is left: {each}")
    if stream.truncation.updating or stream.shown != stream.current:
        raise Violated("recovered, and a truncation is under way, or the newest epoch is not shown")
    if status.state == "SEALED" and any(each[1] == "COMMITTING" for each in stream.transactions):
        raise Violated("sealed, and a transaction is to be committed")
