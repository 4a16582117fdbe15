"""The steps of a lookup and their reasons, as a trace of events, and the trace as text for users.

A lookup with a `Trace` records each decision in it; without a trace recording costs nothing. The driver adds requests,
bytes and time, which the search does not have. An `Explanation` renders a trace:

    stream 420000   offsets [1000, 1600)   limit 4                           image 0   policy spread
    ────────────────────────────────────────────────────────────────────────────────────────────────
    answer   3 objects hold [974, 1085); then a hole: no listed object continues at 1085
    cost     3 rounds, 11 requests, 2.5 KiB, 15.2 ms                      opening everything: 21

    at 1000  node 4 owns [0, 2000) and lists 21 objects
    round 1  opened 8 of 21 candidates, evenly spread                    8 requests, 1.8 KiB, 6.0 ms
             ▕..<.<..<..<.>..>.>.>..▏
             <  object 12 has [636, 686)
             <  object 16 has [833, 974)
             >  object 20 has [1017, 1056)
             ...

The text of a round contains a subtraction: the listed objects, minus the objects that the bounds, the index and the
filters exclude, are the candidates. The map of a round is the node's list, oldest object left; the legend below
explains the marks. `to_dict` contains all details, also those that the text omits.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from accel.drawing import cell_html
from accel.errors import AccelError
from accel.image import OPEN_END, ImageVersion, NodeImage, OwnershipRange, version_number
from accel.lookup.answer import Answer, Ending, FoundObject, Kind, Request
from accel.lookup.known_ranges import KnownRanges, SnapshotFacts, covered_objects
from accel.lookup.search_requests import HintReply, OpenObjects, ReadEntries, ReadFilters, ReadRoot
from accel.lookup.stats import NodeHint, trouble_of
from accel.units import count_text, size_text, time_text
from loaders.hints import HintProblem, HintTrouble
from loaders.plan import Bracket
from loaders.tracing import RequestTimes
from range_index import StreamRange

if TYPE_CHECKING:
    from accel.lookup.stream_map import StreamMap

WIDTH = 96
LABEL_WIDTH = 9
MAP_EDGES = "▕▏"
MAP_WIDTH_MAX = 80
CELL_EVENTS_MAX, CELL_OPENED_MAX, CELL_NODES_MAX = 200, 500, 4
SHOWN_BEFORE_MAX = 2
SHOWN_AFTER_MAX = 4

_LEGEND = "< ends before   # holds the offset   > starts after   o lacks it   . not opened   ! failed"


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a lookup reached its answer or its error.

    Args:
        request: the request.
        outcome: the answer, or the error that the lookup ended with.
        trace: the events.
        seconds: total time.
        policy: the policy that chose the objects to open.
        hints: for each visited node the state of its snapshot and of its pack, after the lookup.
        stream_map: the map of the stream after the lookup, for drawings; None if it was not recorded.
    """

    request: Request
    outcome: Answer | AccelError
    trace: Trace
    seconds: float
    policy: str
    hints: tuple[NodeHint, ...] = ()
    stream_map: StreamMap | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        told = answer_text(self.outcome) if isinstance(self.outcome, Answer) else repr(self.outcome)
        return f"<Explanation of {self._asked}: {told}; {count_text(self.trace.round_count, 'round')}>"

    def _repr_html_(self) -> str:
        """HTML for notebooks, drawn as in the sidecar's console: loads nothing, at most 2,000 objects of each node."""
        data = {"trace": _shortened(self.to_dict()), "map": _map_data(self.stream_map, self.trace.node_ids)}
        return cell_html("explanation", data, title=f"Explanation of {self._asked}", text=self.text())

    @property
    def _asked(self) -> str:
        request = self.request
        end = "..." if request.end == OPEN_END else str(request.end)
        return f"stream {request.stream_id}, offsets [{request.start}, {end})"

    @property
    def answer(self) -> Answer:
        """The answer.

        Raises:
            AccelError: the lookup failed with this error.
        """
        if isinstance(self.outcome, AccelError):
            raise self.outcome
        return self.outcome

    @property
    def error(self) -> AccelError | None:
        """The error of a failed lookup; None if it did not fail."""
        return self.outcome if isinstance(self.outcome, AccelError) else None

    @property
    def requests(self) -> int:
        """The number of requests that this lookup itself started."""
        return sum(one.requests for one in self.trace.rounds) + sum(one.requests for one in self.trace.hints)

    @property
    def bytes_read(self) -> int:
        """The number of bytes that these requests fetched."""
        return sum(one.bytes for one in self.trace.rounds) + sum(one.bytes for one in self.trace.hints)

    @property
    def listed_objects(self) -> int:
        """The number of objects in the visited lists: opening everything would cost at least as many requests."""
        visits = [event for event in self.trace.events if isinstance(event, NodeVisited)]
        return sum({visit.owned.node_id: visit.listed_objects for visit in visits}.values())

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data."""
        return {
            "request": msgspec.structs.asdict(self.request),
            "policy": self.policy,
            "image_versions": [version_number(version) for version in self.trace.image_versions],
            "answer": None if isinstance(self.outcome, AccelError) else self._answer_dict(self.outcome),
            "error": None if self.error is None else {"type": type(self.error).__name__, "message": str(self.error)},
            "cost": {
                "rounds": self.trace.round_count,
                "requests": self.requests,
                "bytes": self.bytes_read,
                "seconds": self.seconds,
                "requests_if_everything_was_opened": self.listed_objects,
            },
            "hints": [{**asdict(hint), "state": hint.state.value} for hint in self.hints],
            "events": [{"event": EVENT_NAMES[type(event)], **_plain(asdict(event))} for event in self.trace.events],
        }

    def _answer_dict(self, answer: Answer) -> dict[str, Any]:
        # A repeated search may have picked objects twice, or other objects before: only those of the answer count.
        picked = [event for event in self.trace.events if isinstance(event, Picked)]
        source_of = {event.found.object_id: event.source for event in picked}
        return {
            "objects": [_found_dict(found, source_of.get(found.object_id, "memory")) for found in answer.objects],
            "start_offset": answer.start_offset,
            "end_offset": answer.end_offset,
            "ending": answer.ending.value,
            "resume_offset": answer.resume_offset,
            "stream_end": answer.stream_end,
        }

    def to_json(self) -> str:
        """The explanation as JSON text."""
        return json.dumps(self.to_dict(), indent=2)

    def text(self) -> str:
        """The explanation as lines for a terminal of 96 columns."""
        return "\n".join([*self._head(), *self._body(), *self._close()])

    def _head(self) -> Iterator[str]:
        request, outcome = self.request, self.outcome
        end = "..." if request.end == OPEN_END else str(request.end)
        searched = [outcome.image_version] if isinstance(outcome, Answer) else self.trace.image_versions
        version = searched[-1] if searched else "none"
        what = f"stream {request.stream_id}   offsets [{request.start}, {end})   limit {request.limit}"
        yield _justified(what, f"image {version}   policy {self.policy}")
        yield "─" * WIDTH
        if isinstance(outcome, AccelError):
            yield f"failed   {type(outcome).__name__}: {outcome}"
        else:
            yield f"answer   {answer_text(outcome)}"
        cost = cost_text(self.requests, self.bytes_read, self.seconds)
        everything = f"opening everything: {count_text(self.listed_objects, 'request')}"
        yield _justified(f"cost     {count_text(self.trace.round_count, 'round')}, {cost}", everything)
        yield ""

    def _body(self) -> Iterator[str]:
        for event in self.trace.events:
            if isinstance(event, NodeVisited):
                end = "..." if event.owned.end == OPEN_END else str(event.owned.end)
                owned = f"node {event.owned.node_id} owns [{event.owned.start}, {end})"
                lists = count_text(event.listed_objects, "object")
                yield _labelled(f"at {event.offset}", f"{owned} and lists {lists}")
            elif isinstance(event, Picked):
                yield _picked_line(event)
            elif isinstance(event, HintRead):
                yield from _hint_lines(event)
            elif isinstance(event, Ended):
                yield _labelled("again" if event.offset < 0 else "hole", event.reason)
            else:
                yield from _round_lines(event, self.policy)

    def _close(self) -> Iterator[str]:
        failed = [opened for one in self.trace.rounds for opened in one.opened if opened.error]
        if failed:
            yield ""
        for opened in failed:
            yield f"warning  object {opened.object_id} could not be opened: {opened.error}"
        yield from self._hint_states()
        if self.trace.rounds:
            yield ""
            yield f"map      {_LEGEND}"

    def _hint_states(self) -> Iterator[str]:
        if not self.requests:
            return  # memory answered: hints could not have saved requests
        for node_id in dict.fromkeys(hint.node_id for hint in self.hints):
            told = "; ".join(str(hint) for hint in self.hints if hint.node_id == node_id)
            yield from textwrap.wrap(f"hints    node {node_id}: {told}", WIDTH, subsequent_indent=" " * 9)


def _shortened(told: dict[str, Any]) -> dict[str, Any]:
    """An explanation as plain data, with the number of events and opened objects that a notebook cell shows."""
    events = told["events"][:CELL_EVENTS_MAX]
    for event in events:
        opened = event.get("opened", ())
        if len(opened) > CELL_OPENED_MAX:
            event |= {"opened": opened[:CELL_OPENED_MAX], "left_out": len(opened) - CELL_OPENED_MAX}
    return {**told, "hints": [], "events": events, "events_left_out": len(told["events"]) - len(events)}


def _map_data(stream_map: StreamMap | None, node_ids: Sequence[int]) -> dict[str, Any] | None:
    if stream_map is None:
        return None
    told: dict[str, Any] = msgspec.to_builtins(stream_map)
    nodes = [node for node in told["nodes"] if node["node_id"] in node_ids]
    return {**told, "nodes": nodes[:CELL_NODES_MAX], "stream_objects": told["stream_objects"][-CELL_OPENED_MAX:]}


def answer_text(answer: Answer) -> str:
    """An answer in one sentence."""
    if answer.is_beyond_end:
        return f"no object: the stream ends at {answer.stream_end}, before offset {answer.resume_offset}"
    if not answer.objects and answer.ending is Ending.HOLE:
        return f"no object: no listed object holds offset {answer.resume_offset}"
    if not answer.objects:
        return f"no object; {ending_text(answer)}"
    holds = "holds" if len(answer.objects) == 1 else "hold"
    span = f"[{answer.start_offset}, {answer.end_offset})"
    return f"{count_text(len(answer.objects), 'object')} {holds} {span}; {ending_text(answer)}"


def ending_text(answer: Answer) -> str:
    """The reason why an answer ends, as text for users."""
    offset = answer.resume_offset
    return {
        Ending.LIMIT: "the limit is reached",
        Ending.END: "the end is reached",
        Ending.HOLE: f"then a hole: no listed object continues at {offset}",
        Ending.PARTIAL: f"partial: the caller's limit was reached first, continue at {offset}",
    }[answer.ending]


def cost_text(requests: int, size_bytes: int, seconds: float) -> str:
    """Requests, bytes and time as text for users."""
    return f"{count_text(requests, 'request')}, {size_text(size_bytes)}, {time_text(seconds)}"


def _labelled(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH - 1}} {text}"


def _justified(left: str, right: str) -> str:
    return left + right.rjust(max(len(right) + 3, WIDTH - len(left)))


def _hint_lines(one: HintRead) -> Iterator[str]:
    label = "besides" if one.beside else f"round {one.number}" if one.number else "hints"
    cost = cost_text(one.requests, one.bytes, one.seconds) if one.number else "from memory"
    yield _justified(_labelled(label, _hint_text(one)), cost)
    if one.problem is not None and one.trouble != HintTrouble.MISSING:
        yield from textwrap.wrap(one.problem, WIDTH, initial_indent=" " * 9, subsequent_indent=" " * 9)


def _hint_text(one: HintRead) -> str:
    if one.what == "filters":
        return _filters_text(one)
    if not one.finished:
        return f"requested the snapshot's {one.what}; the time was over before it was read"
    if one.trouble is not None:
        return "the node has no snapshot" if one.trouble == HintTrouble.MISSING else f"the snapshot is {one.trouble}"
    if one.what == "root":
        return f"the snapshot covers {one.covered} of {count_text(one.listed, 'listed object')}"
    holds = "holds" if one.entries == 1 else "hold"
    return f"by the snapshot, {one.entries} of {one.covered} {holds} the stream"


def _filters_text(one: HintRead) -> str:
    if not one.finished:
        return "requested the node's filters; the search continued before they were read"
    if one.trouble is not None:
        return "the node has no filters" if one.trouble == HintTrouble.MISSING else f"the filters are {one.trouble}"
    if not one.covered:
        return "the node's filters would cost more than they save, and were not loaded"
    return f"loaded {count_text(one.covered, 'filter')}, which costs less than opening objects"


def _round_lines(one: Round, policy: str) -> Iterator[str]:
    what = _labelled(f"round {one.number}", _chosen_text(one, policy))
    yield _justified(what, cost_text(one.requests, one.bytes, one.seconds))
    less = {
        "by bounds": one.outside,
        "by index": one.known_holders + one.known_absent,
        "by filter": one.filtered,
        "by the list": one.excluded,
    }
    if any(less.values()):
        terms = "".join(f" - {number} {by}" for by, number in less.items() if number)
        yield f"         {one.listed} listed{terms} = {count_text(one.candidates, 'candidate')}"
    yield _labelled("", _map(one).join(MAP_EDGES))
    if not one.finished:
        yield "         ?  they were not loaded when the search continued or ended"
    elif late := sum(not opened.came for opened in one.opened):
        yield f"         ?  {late} not loaded when the others decided"
    yield from _opened_lines(one)


def _chosen_text(one: Round, policy: str) -> str:
    opened = len(one.opened)
    verb = "opened" if one.finished else "asked for"
    if opened >= one.candidates:
        beyond = f", and {opened - one.candidates} beyond them" if opened > one.candidates else ""
        return f"{verb} {'the one candidate' if one.candidates == 1 else f'all {one.candidates} candidates'}{beyond}"
    how = "evenly spread"
    if policy.startswith("window"):
        how = "the next in order" + {"window": ""}.get(policy, ", and some ahead")
    elif one.near != "unknown":
        ends = {"low": "the low end", "high": "the high end", "ends": "both ends"}
        how = f"densest at {ends[one.near]}"
    return f"{verb} {opened} of {count_text(one.candidates, 'candidate')}, {how}"


def _opened_lines(one: Round) -> Iterator[str]:
    """The holders next to the offset, and the number of the others."""
    holders = sorted((opened.held.start, opened.position, opened) for opened in one.opened if opened.held is not None)
    marked = [(_mark(one, opened), opened) for _, _, opened in holders]
    before = [pair for pair in marked if pair[0] == "<"]
    after = [pair for pair in marked if pair[0] != "<"]
    shown = before[-SHOWN_BEFORE_MAX:] + after[:SHOWN_AFTER_MAX]
    for mark, opened in shown:
        yield f"         {mark}  object {opened.object_id} has {_held_text(opened)}"
    further = len(holders) - len(shown)
    lacking = sum(_mark(one, opened) == "o" for opened in one.opened)
    rest = [f"{further} more {'holds' if further == 1 else 'hold'} the stream further off"] if further else []
    rest += [f"{lacking} {'does' if lacking == 1 else 'do'} not hold it"] if lacking else []
    if rest:
        yield f"         …  {', '.join(rest)}"


def _held_text(opened: Opened) -> str:
    if opened.held is None:
        return "nothing of it"
    return f"[{opened.held.start}, {opened.held.end})" + (", with a hole inside" if opened.held.holed else "")


def _map(one: Round) -> str:
    """The node's list in at most 80 characters; a cell of several objects shows the mark of the highest rank."""
    width = min(one.listed, MAP_WIDTH_MAX)
    cells = [" "] * width

    def cell(position: int) -> int:
        return position * width // one.listed

    if one.candidates:
        for at in range(cell(max(0, one.low_position + 1)), cell(max(0, min(one.high_position, one.listed) - 1)) + 1):
            cells[at] = "."
    for position, mark in ((one.low_position, "<"), (one.high_position, ">")):
        if 0 <= position < one.listed:
            cells[cell(position)] = mark
    for opened in sorted(one.opened, key=lambda opened: _RANK[_mark(one, opened)]):
        cells[cell(opened.position)] = _mark(one, opened)
    return "".join(cells)


_RANK = {"?": 0, "o": 0, "<": 1, ">": 1, "!": 2, "#": 3}


def _mark(one: Round, opened: Opened) -> str:
    if opened.error is not None:
        return "!"
    if not opened.came:
        return "?"
    if opened.held is None:
        return "o"
    if opened.held.end <= one.offset:
        return "<"
    return "#" if opened.held.start <= one.offset else ">"


def _picked_line(event: Picked) -> str:
    found = event.found
    kind = "stream object" if found.kind is Kind.STREAM else "object"
    source = {
        "image": "named by the image",
        "memory": "known from memory",
        "snapshot": "known from the snapshot",
        "opened": "opened just now",
    }[event.source]
    return f"took     {kind} {found.object_id} with [{found.start}, {found.end}), {source}"


def _found_dict(found: FoundObject, source: str) -> dict[str, Any]:
    return {
        "object_id": found.object_id,
        "kind": found.kind.value,
        "node_id": found.node_id,
        "start": found.start,
        "end": found.end,
        "known_from": source,
    }


def _plain(value: Any) -> Any:
    """Replace enums and named tuples by plain data."""
    if isinstance(value, dict):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    return value.value if isinstance(value, Kind | Ending) else value


Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class NodeVisited:
    """A visit of a node, which owns the offset."""

    offset: int
    owned: OwnershipRange
    listed_objects: int


@dataclass(frozen=True, slots=True)
class Picked:
    """A picked object; `source` is the source of its range: image, memory, snapshot, or opened in this lookup."""

    found: FoundObject
    source: str


@dataclass(frozen=True, slots=True)
class Opened:
    """One requested object: its range of the stream, or why it could not be opened.

    If `came` is false, the lookup did not wait for it: other objects decided, or the time was over.
    """

    position: int
    object_id: int
    order_id: int
    held: StreamRange | None
    error: str | None = None
    came: bool = True


@dataclass(frozen=True, slots=True)
class Round:
    """One round of loading.

    Of `listed` objects, these numbers needed no request: `known_holders` and `known_absent` (by the index in memory),
    `filtered` (by a filter), `excluded` (by facts from commits only), `outside` (by the known holders at `low_position`
    and `high_position` of the list; -1 and `listed` if there is none). The rest are `candidates`. A round is not
    `finished` if the time was over first, or other objects decided: its objects were requested, and their ranges are
    not known.
    """

    number: int
    offset: int
    node_id: int
    listed: int
    known_holders: int
    known_absent: int
    filtered: int
    outside: int
    candidates: int
    low_position: int
    high_position: int
    near: str
    opened: tuple[Opened, ...] = ()
    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    finished: bool = False
    excluded: int = 0


@dataclass(frozen=True, slots=True)
class HintRead:
    """A read of the node's snapshot, or its use from memory (then in round 0).

    Args:
        number: of the round; objects opened in the same round are in a `Round` of the same number.
        offset: the searched offset.
        node_id: the node of the snapshot.
        what: "root", "entries", or "filters" of the node's pack.
        listed: the number of objects in the node's list.
        covered: the number of listed objects that the snapshot covers, or of loaded filters.
        entries: the number of covered objects that hold the stream.
        trouble: the kind of the problem, as in the counters.
        problem: the full text of the problem.
        beside: whether objects were opened in the same round.
        requests, bytes, seconds: the cost of the read.
        finished: false if the time was over first.
    """

    number: int
    offset: int
    node_id: int
    what: str
    listed: int
    covered: int = 0
    entries: int = 0
    trouble: str | None = None
    problem: str | None = None
    beside: bool = False
    requests: int = 0
    bytes: int = 0
    seconds: float = 0.0
    finished: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a search or a visit: a hole of a node's list, an offset without an owner, or a new search."""

    offset: int
    reason: str


Event = NodeVisited | Picked | Round | HintRead | Ended

EVENT_NAMES: Final[dict[type[Event], str]] = {
    NodeVisited: "hopped",
    Picked: "picked",
    Round: "round",
    HintRead: "hintread",
    Ended: "ended",
}
"""Names of events in the JSON; scripts read them, so a name does not change with its class."""


@dataclass(slots=True)
class Trace:
    """Collects the events of one lookup. One thread at a time.

    `round_count` counts rounds of waiting: requests at the same time are one round. The driver adds what the lookup
    waited for: seconds for an image, the times of the requests that it began, openings that another lookup had begun
    (`joined`), and opened objects that memory had held before (`again`).
    """

    events: list[Event] = field(default_factory=list)
    answer: Answer | None = None
    image_versions: list[ImageVersion] = field(default_factory=list)
    round_count: int = 0
    image_seconds: float = 0.0
    times: RequestTimes = field(default_factory=RequestTimes, compare=False)
    joined: int = 0
    again: int = 0
    _opened_ids: set[int] = field(default_factory=set)
    _told_ids: set[int] = field(default_factory=set)
    _known: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def rounds(self) -> list[Round]:
        """The rounds of opening objects, in order."""
        return [event for event in self.events if isinstance(event, Round)]

    @property
    def hints(self) -> list[HintRead]:
        """The reads and uses of snapshots, in order."""
        return [event for event in self.events if isinstance(event, HintRead)]

    @property
    def node_ids(self) -> list[int]:
        """The visited nodes, each once, in order."""
        return list(dict.fromkeys(event.owned.node_id for event in self.events if isinstance(event, NodeVisited)))

    def record_start(self, image_version: ImageVersion) -> None:
        """Record the start of a search, which may be a repeated one, with this image."""
        self.image_versions.append(image_version)
        if len(self.image_versions) > 1:
            self.events.append(Ended(-1, f"searched again with image {image_version}"))

    def record_visit(self, offset: int, owned: OwnershipRange, listed_objects: int) -> None:
        """Record the visit of a node."""
        self.events.append(NodeVisited(offset, owned, listed_objects))

    def record_pick(self, found: FoundObject) -> None:
        """Record a picked object."""
        self.events.append(Picked(found, self._source(found)))

    def _source(self, found: FoundObject) -> str:
        if found.kind is Kind.STREAM:
            return "image"
        if found.object_id in self._opened_ids:
            return "opened"
        return "snapshot" if found.object_id in self._told_ids else "memory"

    def record_known(self, known: KnownRanges, *, loaded: Flags, filtered: Flags, excluded: Flags | None) -> None:
        """Record the known ranges before a round."""
        holders = np.zeros(len(known.unknown), dtype=np.bool_)
        holders[known.positions] = True
        filtered_only = filtered & ~loaded & ~holders
        without = 0 if excluded is None else int((excluded & ~filtered & ~loaded & ~holders).sum())
        held, ruled_out = int(holders.sum()), int(filtered_only.sum())
        absent = int(len(known.unknown) - known.unknown.sum()) - held - ruled_out - without
        self._known = (held, absent, ruled_out, without)

    def record_round(self, offset: int, wanted: OpenObjects, bracket: Bracket | None) -> None:
        """Record the begin of a round with this step; with the bracket if objects are requested."""
        self.round_count += 1
        beside = bracket is not None and len(wanted.positions) > 0
        if bracket is not None and beside:
            self._record_policy_round(offset, wanted, bracket)
        if isinstance(wanted, ReadRoot | ReadEntries | ReadFilters):
            what = {ReadRoot: "root", ReadEntries: "entries", ReadFilters: "filters"}[type(wanted)]
            node = wanted.node
            self.events.append(HintRead(self.round_count, offset, node.node_id, what, len(node), beside=beside))

    def _record_policy_round(self, offset: int, wanted: OpenObjects, bracket: Bracket) -> None:
        holders, absent, filtered, excluded = self._known
        node, listed = wanted.node, len(wanted.node)
        count = len(bracket.candidates)
        chosen = tuple(replace(_opened(node, at), came=False) for at in wanted.positions)
        self._opened_ids.update(opened.object_id for opened in chosen)
        self.events.append(
            Round(
                number=self.round_count,
                offset=offset,
                node_id=node.node_id,
                listed=listed,
                known_holders=holders,
                known_absent=absent,
                filtered=filtered,
                excluded=excluded,
                outside=max(0, listed - holders - absent - filtered - excluded - count),
                candidates=count,
                low_position=bracket.low,
                high_position=bracket.high,
                near=bracket.guess.near.value,
                opened=chosen,
            )
        )

    def record_hint(self, node: NodeImage, reply: HintReply) -> None:
        """Record that the snapshot was read, or could not be read."""
        known = reply.known
        root = None if known is None else known.root
        covered = (reply.filters or 0) if root is None else int(covered_objects(node, root).sum())
        problem = reply.problem or (known.problem if known is not None else None)
        entries = 0 if reply.entries is None else len(reply.entries)
        self._told_ids.update([] if reply.entries is None else reply.entries.columns.object_ids.tolist())
        self._change_last(HintRead, covered=covered, entries=entries, finished=True, **_trouble(problem))

    def record_hint_at_hand(self, offset: int, node: NodeImage, facts: SnapshotFacts) -> None:
        """Record that the snapshot's entries were in memory."""
        settled, entries = int(facts.settled.sum()), len(facts.rows.positions)
        listed = len(node)
        self.events.append(HintRead(0, offset, node.node_id, "entries", listed, settled, entries, finished=True))

    def record_no_snapshot(self, offset: int, node: NodeImage, problem: HintProblem | None) -> None:
        """Record that the node is known to have no usable snapshot."""
        self.events.append(HintRead(0, offset, node.node_id, "root", len(node), finished=True, **_trouble(problem)))

    def record_opened(
        self, node: NodeImage, results: Sequence[tuple[int, StreamRange | None, AccelError | None]]
    ) -> None:
        """Record opened objects: (position, range of the stream, error)."""
        came = {at: _opened(node, at, held, str(error) if error else None) for at, held, error in results}
        for index in range(len(self.events) - 1, -1, -1):
            event = self.events[index]
            if not isinstance(event, Round) or event.node_id != node.node_id:
                continue
            if any(each.position in came and not each.came for each in event.opened):
                opened = tuple(came.pop(each.position, each) for each in event.opened)
                self.events[index] = replace(event, opened=opened, finished=True)
            if not came:
                return

    def record_cost(self, requests: int, size_bytes: int, seconds: float, *, hint: tuple[int, int] = (0, 0)) -> None:
        """Add the cost of the last results; called by the driver before the search continues.

        Args:
            requests: for objects.
            size_bytes: fetched by these requests.
            seconds: since the request, or since the previous results.
            hint: requests and bytes of the snapshot.
        """
        costs = {Round: (requests, size_bytes), HintRead: hint}
        for index in range(max(0, len(self.events) - 2), len(self.events)):
            event = self.events[index]
            if isinstance(event, Round | HintRead) and event.number == self.round_count:
                count, size = costs[type(event)]
                cost = {"requests": event.requests + count, "bytes": event.bytes + size}
                self.events[index] = replace(event, **cost, seconds=event.seconds + seconds)  # type: ignore[arg-type]

    def record_hole(self, offset: int, node: NodeImage) -> None:
        """Record that a node's list has no object that continues."""
        self.events.append(Ended(offset, f"node {node.node_id} lists no object that continues at {offset}"))

    def record_no_owner(self, offset: int, owned: OwnershipRange | None) -> None:
        """Record that no other node owns the offset."""
        if owned is None:
            self.events.append(Ended(offset, f"no node owns offset {offset}"))

    def record_end(self, answer: Answer) -> None:
        """Record the end of the search."""
        self.answer = answer

    def _change_last(self, kind: type[Round | HintRead], **changes: object) -> None:
        for index in range(len(self.events) - 1, -1, -1):
            event = self.events[index]
            if isinstance(event, kind):
                self.events[index] = replace(event, **changes)  # type: ignore[arg-type]  # names are checked by tests
                return


def _trouble(problem: HintProblem | AccelError | None) -> dict[str, Any]:
    return {} if problem is None else {"trouble": trouble_of(problem), "problem": str(problem)}


def _opened(node: NodeImage, position: int, held: StreamRange | None = None, error: str | None = None) -> Opened:
    return Opened(position, int(node.object_ids[position]), int(node.order_ids[position]), held, error)
