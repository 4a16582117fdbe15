"""A lookup told to a person: what it considered, skipped, opened, and what that cost.

    stream 420000   offsets [1000, 1600)   limit 4                           image 0   policy spread
    ────────────────────────────────────────────────────────────────────────────────────────────────
    answer   3 objects hold [974, 1085); then a hole: nothing listed goes on at 1085
    cost     3 rounds, 11 requests, 2.5 KiB, 15.2 ms                      opening everything: 21

    at 1000  node 4 owns [0, 2000) and lists 21 objects
    round 1  opened 8 of 21 candidates, evenly spread                    8 requests, 1.8 KiB, 6.0 ms
             ▕..<.<..<..<.>..>.>.>..▏
             <  object 12 has [636, 686)
             <  object 16 has [833, 974)
             >  object 20 has [1017, 1056)
             ...

A round names what it did not have to open as a subtraction: what the node lists, less what the bounds, the index and
the filters exclude, is what remains as candidates. Its map is the node's list, oldest object left; the legend below the
story explains the marks. `to_dict` has everything that the text leaves out.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from accel.errors import AccelError
from accel.image import OPEN_END
from accel.lookup.answer import Answer, Ending, Kind, Request
from accel.lookup.story import Ended, HintRead, Hopped, Opened, Picked, Round, Story
from accel.units import count_text, size_text, time_text
from accel.version import version_number
from loaders.hints import HintTrouble

WIDTH = 96
MAP_WIDTH_MAX = 80
SHOWN_BEFORE_MAX = 2
SHOWN_AFTER_MAX = 4

_LEGEND = "< ends before   # holds the offset   > starts after   o lacks it   . left alone   ! failed"


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a lookup came to its answer, or to its error.

    Args:
        request: what was asked.
        outcome: the answer, or the error that the lookup ended with.
        story: what happened.
        seconds: time in all.
        policy: which policy chose what to open.
    """

    request: Request
    outcome: Answer | AccelError
    story: Story
    seconds: float
    policy: str

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
        """What the lookup failed with, if it did."""
        return self.outcome if isinstance(self.outcome, AccelError) else None

    @property
    def requests(self) -> int:
        """Requests that this lookup itself caused."""
        return sum(each.requests for each in self.story.rounds) + sum(each.requests for each in self.story.hints)

    @property
    def bytes_read(self) -> int:
        """Bytes that these fetched."""
        return sum(each.bytes for each in self.story.rounds) + sum(each.bytes for each in self.story.hints)

    @property
    def listed_objects(self) -> int:
        """Objects in the lists that were visited: what opening everything would have cost, in requests at least."""
        hops = [event for event in self.story.events if isinstance(event, Hopped)]
        return sum({hop.owned.node_id: hop.listed_objects for hop in hops}.values())

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain data."""
        return {
            "request": asdict(self.request),
            "policy": self.policy,
            "image_versions": [version_number(each) for each in self.story.image_versions],
            "answer": None if isinstance(self.outcome, AccelError) else self._answer_dict(self.outcome),
            "error": None if self.error is None else {"type": type(self.error).__name__, "message": str(self.error)},
            "cost": {
                "rounds": self.story.round_count,
                "requests": self.requests,
                "bytes": self.bytes_read,
                "seconds": self.seconds,
                "requests_if_everything_was_opened": self.listed_objects,
            },
            "events": [{"event": type(event).__name__.lower(), **_plain(asdict(event))} for event in self.story.events],
        }

    def _answer_dict(self, answer: Answer) -> dict[str, Any]:
        return {
            "objects": [_found_dict(event) for event in self.story.events if isinstance(event, Picked)],
            "start_offset": answer.start_offset,
            "end_offset": answer.end_offset,
            "ending": answer.ending.value,
            "resume_offset": answer.resume_offset,
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
        searched = [outcome.image_version] if isinstance(outcome, Answer) else self.story.image_versions
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
        yield _justified(f"cost     {count_text(self.story.round_count, 'round')}, {cost}", everything)
        yield ""

    def _body(self) -> Iterator[str]:
        for event in self.story.events:
            if isinstance(event, Hopped):
                end = "..." if event.owned.end == OPEN_END else str(event.owned.end)
                owned = f"node {event.owned.node_id} owns [{event.owned.start}, {end})"
                yield f"at {event.offset}".ljust(9) + f"{owned} and lists {count_text(event.listed_objects, 'object')}"
            elif isinstance(event, Picked):
                yield _picked_line(event)
            elif isinstance(event, HintRead):
                yield from _hint_lines(event)
            elif isinstance(event, Ended):
                yield ("again" if event.offset < 0 else "hole").ljust(9) + event.reason
            else:
                yield from _round_lines(event, self.policy)

    def _close(self) -> Iterator[str]:
        failed = [each for one in self.story.rounds for each in one.opened if each.error]
        if failed:
            yield ""
        for each in failed:
            yield f"warning  object {each.object_id} could not be opened: {each.error}"
        if self.story.rounds:
            yield ""
            yield f"map      {_LEGEND}"


def answer_text(answer: Answer) -> str:
    """An answer in one sentence."""
    if not answer.objects and answer.ending is Ending.HOLE:
        return f"no object: nothing listed holds offset {answer.resume_offset}"
    if not answer.objects:
        return f"no object; {ending_text(answer)}"
    holds = "holds" if len(answer.objects) == 1 else "hold"
    span = f"[{answer.start_offset}, {answer.end_offset})"
    return f"{count_text(len(answer.objects), 'object')} {holds} {span}; {ending_text(answer)}"


def ending_text(answer: Answer) -> str:
    """Why an answer ends where it ends, for a person."""
    offset = answer.resume_offset
    return {
        Ending.LIMIT: "the limit is reached",
        Ending.END: "the end is reached",
        Ending.HOLE: f"then a hole: nothing listed goes on at {offset}",
        Ending.PARTIAL: f"partial: the caller's bound came first, go on at {offset}",
    }[answer.ending]


def cost_text(requests: int, size_bytes: int, seconds: float) -> str:
    """Requests, bytes and time for a person."""
    return f"{count_text(requests, 'request')}, {size_text(size_bytes)}, {time_text(seconds)}"


def _justified(left: str, right: str) -> str:
    return left + right.rjust(max(len(right) + 3, WIDTH - len(left)))


def _hint_lines(one: HintRead) -> Iterator[str]:
    label = "besides" if one.beside else f"round {one.number}" if one.number else "hints"
    cost = cost_text(one.requests, one.bytes, one.seconds) if one.number else "from memory"
    yield _justified(label.ljust(9) + _hint_text(one), cost)
    if one.problem is not None and one.trouble != HintTrouble.MISSING:
        yield from textwrap.wrap(one.problem, WIDTH, initial_indent=" " * 9, subsequent_indent=" " * 9)


def _hint_text(one: HintRead) -> str:
    if not one.finished:
        return f"asked the snapshot for its {one.what}; the time was over before it came"
    if one.trouble is not None:
        return "the node has no snapshot" if one.trouble == HintTrouble.MISSING else f"the snapshot is {one.trouble}"
    if one.what == "root":
        return f"the snapshot covers {one.covered} of {count_text(one.listed, 'listed object')}"
    holds = "holds" if one.entries == 1 else "hold"
    return f"the snapshot says that {one.entries} of {one.covered} {holds} the stream"


def _round_lines(one: Round, policy: str) -> Iterator[str]:
    what = f"round {one.number}".ljust(9) + _chosen_text(one, policy)
    yield _justified(what, cost_text(one.requests, one.bytes, one.seconds))
    less = {"by bounds": one.outside, "by index": one.known_holders + one.known_absent, "by filter": one.filtered}
    if any(less.values()):
        terms = "".join(f" - {number} {by}" for by, number in less.items() if number)
        yield f"         {one.listed} listed{terms} = {count_text(one.candidates, 'candidate')}"
    yield f"         ▕{_map(one)}▏"
    if not one.finished:
        yield "         ?  the time was over before they came"
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
        how = {"low": "densest at the low end", "high": "densest at the high end"}[one.near]
    return f"{verb} {opened} of {count_text(one.candidates, 'candidate')}, {how}"


def _opened_lines(one: Round) -> Iterator[str]:
    """The holders next to the offset, and how many more there are."""
    holders = sorted((each.held.start, each.position, each) for each in one.opened if each.held is not None)
    marked = [(_mark(one, each), each) for _, _, each in holders]
    before = [pair for pair in marked if pair[0] == "<"]
    after = [pair for pair in marked if pair[0] != "<"]
    shown = before[-SHOWN_BEFORE_MAX:] + after[:SHOWN_AFTER_MAX]
    for mark, each in shown:
        yield f"         {mark}  object {each.object_id} has {_held_text(each)}"
    further = len(holders) - len(shown)
    lacking = sum(_mark(one, each) == "o" for each in one.opened)
    rest = [f"{further} more {'holds' if further == 1 else 'hold'} the stream further off"] if further else []
    rest += [f"{lacking} {'does' if lacking == 1 else 'do'} not hold it"] if lacking else []
    if rest:
        yield f"         …  {', '.join(rest)}"


def _held_text(each: Opened) -> str:
    if each.held is None:
        return "nothing of it"
    return f"[{each.held.start}, {each.held.end})" + (", with a hole inside" if each.held.holed else "")


def _map(one: Round) -> str:
    """The node's list in at most 80 characters; of several objects in one cell the most telling mark wins."""
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
    for each in sorted(one.opened, key=lambda opened: _RANK[_mark(one, opened)]):
        cells[cell(each.position)] = _mark(one, each)
    return "".join(cells)


_RANK = {"?": 0, "o": 0, "<": 1, ">": 1, "!": 2, "#": 3}


def _mark(one: Round, each: Opened) -> str:
    if each.error is not None:
        return "!"
    if each.held is None:
        return "o" if one.finished else "?"
    if each.held.end <= one.offset:
        return "<"
    return "#" if each.held.start <= one.offset else ">"


def _picked_line(event: Picked) -> str:
    found = event.found
    kind = "stream object" if found.kind is Kind.STREAM else "object"
    source = {
        "image": "named by the image",
        "memory": "known from memory",
        "snapshot": "told by the snapshot",
        "opened": "opened just now",
    }[event.source]
    return f"took     {kind} {found.object_id} with [{found.start}, {found.end}), {source}"


def _found_dict(event: Picked) -> dict[str, Any]:
    found = event.found
    return {
        "object_id": found.object_id,
        "kind": found.kind.value,
        "node_id": found.node_id,
        "start": found.start,
        "end": found.end,
        "known_from": event.source,
    }


def _plain(value: Any) -> Any:
    """Enums and named tuples out of plain data."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.value if isinstance(value, Kind | Ending) else value
