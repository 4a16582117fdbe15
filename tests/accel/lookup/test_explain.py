"""An explanation reads exactly like this: the text is made for a person at night, so it is tested letter by letter."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from accel.errors import CorruptObject
from accel.image import MetadataImage, ObjectRef
from accel.lookup.answer import Answer, Ending, FoundObject, Kind, Request
from accel.lookup.explain import EVENT_NAMES, WIDTH, Explanation, Trace, answer_text, ending_text
from accel.lookup.search_requests import OpenObjects, Reply
from bloom import StreamFilter
from loaders.plan import policy_of
from range_index import ObjectRanges
from tests.accel.lookup.cluster import image_of
from tests.accel.lookup.commit_facts import Told
from tests.accel.lookup.driving import Driver, index_cache, look_up, make_ranges

STREAM_ID = 420_000


def world(objects: int = 10) -> tuple[MetadataImage, dict[int, ObjectRanges]]:
    """Node 4 with objects of ten offsets each; the third holds another stream instead. A stream object follows."""
    contents, offset = {}, 0
    for number in range(objects):
        rows = [(8, 0, 5)] if number == 2 else [(STREAM_ID, offset, offset + 10)]
        contents[number] = make_ranges(rows)
        offset += 10 * (number != 2)
    own = {STREAM_ID: [(90, offset, offset + 7)]}
    return image_of({STREAM_ID: (4, offset)}, {4: range(objects)}, 3, own=own), contents


@dataclass
class Telling(Driver):
    """A driver that tells a trace what rounds cost: 100 bytes a request, 15 ms a round."""

    trace: Trace = field(default_factory=Trace)

    def replies(self, wanted: OpenObjects) -> dict[int, Reply]:
        self.trace.record_cost(len(wanted.positions), 100 * len(wanted.positions), 0.015)
        return super().replies(wanted)


def explained(driver: Telling, image: MetadataImage, request: Request, policy: str = "spread:3") -> Explanation:
    driver.trace = Trace()
    chosen = policy_of(policy)
    answer = look_up(image, driver, request, policy=chosen, trace=driver.trace)
    return Explanation(answer.request, answer, driver.trace, 0.0312, chosen.name)


def telling(contents: dict[int, ObjectRanges]) -> Telling:
    return Telling(contents, index_cache())


COLD = """\
stream 420000   offsets [45, ...)   limit 8                              image 3   policy spread
────────────────────────────────────────────────────────────────────────────────────────────────
answer   6 objects hold [40, 97); then a hole: no listed object continues at 97
cost     3 rounds, 6 requests, 600 B, 31.2 ms                    opening everything: 10 requests

at 45    node 4 owns [0, 90) and lists 10 objects
round 1  opened 3 of 10 candidates, evenly spread                     3 requests, 300 B, 15.0 ms
         ▕..o..#.>..▏
         #  object 5 has [40, 50)
         >  object 7 has [60, 70)
         …  1 does not hold it
took     object 5 with [40, 50), opened just now
round 2  opened the one candidate                                      1 request, 100 B, 15.0 ms
         10 listed - 6 by bounds - 3 by index = 1 candidate
         ▕     <#>  ▏
         #  object 6 has [50, 60)
took     object 6 with [50, 60), opened just now
took     object 7 with [60, 70), opened just now
round 3  opened all 2 candidates                                      2 requests, 200 B, 15.0 ms
         10 listed - 4 by bounds - 4 by index = 2 candidates
         ▕       <#>▏
         #  object 8 has [70, 80)
         >  object 9 has [80, 90)
took     object 8 with [70, 80), opened just now
took     object 9 with [80, 90), opened just now
hole     node 4 lists no object that continues at 90
took     stream object 90 with [90, 97), named by the image
hole     node 4 lists no object that continues at 97

map      < ends before   # holds the offset   > starts after   o lacks it   . not opened   ! failed"""

WARM = """\
stream 420000   offsets [45, 65)   limit 8                               image 3   policy spread
────────────────────────────────────────────────────────────────────────────────────────────────
answer   3 objects hold [40, 70); the end is reached
cost     0 rounds, 0 requests, 0 B, 31.2 ms                      opening everything: 10 requests

at 45    node 4 owns [0, 90) and lists 10 objects
took     object 5 with [40, 50), known from memory
took     object 6 with [50, 60), known from memory
took     object 7 with [60, 70), known from memory"""

BROKEN = """\
stream 420000   offsets [15, 30)   limit 8                             image 3   policy load-all
────────────────────────────────────────────────────────────────────────────────────────────────
answer   2 objects hold [10, 30); the end is reached
cost     1 round, 10 requests, 1000 B, 31.2 ms                   opening everything: 10 requests

at 15    node 4 owns [0, 90) and lists 10 objects
round 1  opened all 10 candidates                                   10 requests, 1000 B, 15.0 ms
         ▕<#o>!>>>>>▏
         <  object 0 has [0, 10)
         #  object 1 has [10, 20)
         >  object 3 has [20, 30)
         >  object 5 has [40, 50)
         >  object 6 has [50, 60)
         …  3 more hold the stream further off, 1 does not hold it
took     object 1 with [10, 20), opened just now
took     object 3 with [20, 30), opened just now

warning  object 4 could not be opened: object 'k4' (100 bytes) is corrupt: expected a footer, found none

map      < ends before   # holds the offset   > starts after   o lacks it   . not opened   ! failed"""

LATE = """\
stream 420000   offsets [45, 50)   limit 8                       image 3   policy window+preload
────────────────────────────────────────────────────────────────────────────────────────────────
answer   no object; partial: the caller's limit was reached first, continue at 45
cost     2 rounds, 4 requests, 400 B, 31.2 ms                    opening everything: 10 requests

at 45    node 4 owns [0, 90) and lists 10 objects
round 1  opened 4 of 10 candidates, the next in order, and some ahead   4 requests, 400 B, 15.0 ms
         ▕<<..<..>..▏
         <  object 1 has [10, 20)
         <  object 4 has [30, 40)
         >  object 7 has [60, 70)
         …  1 more holds the stream further off
round 2  asked for all 2 candidates                                      0 requests, 0 B, 0.0 us
         10 listed - 4 by bounds - 4 by index = 2 candidates
         ▕    <??>  ▏
         ?  they were not loaded when the search continued or ended

map      < ends before   # holds the offset   > starts after   o lacks it   . not opened   ! failed"""

FILTERED = """\
stream 420000   offsets [45, 50)   limit 8                               image 3   policy spread
────────────────────────────────────────────────────────────────────────────────────────────────
answer   1 object holds [40, 50); the end is reached
cost     2 rounds, 5 requests, 500 B, 31.2 ms                    opening everything: 10 requests

at 45    node 4 owns [0, 90) and lists 10 objects
round 1  opened 3 of 7 candidates, evenly spread                      3 requests, 300 B, 15.0 ms
         10 listed - 3 by filter = 7 candidates
         ▕..o...>.>.▏
         >  object 6 has [50, 60)
         >  object 8 has [70, 80)
         …  1 does not hold it
round 2  opened all 2 candidates                                      2 requests, 200 B, 15.0 ms
         10 listed - 2 by bounds - 3 by index - 3 by filter = 2 candidates
         ▕.<...#>   ▏
         <  object 1 has [10, 20)
         #  object 5 has [40, 50), with a hole inside
took     object 5 with [40, 50), opened just now

map      < ends before   # holds the offset   > starts after   o lacks it   . not opened   ! failed"""


def test_a_cold_lookup_then_a_warm_one() -> None:
    image, contents = world()
    driver = telling(contents)
    assert explained(driver, image, Request(STREAM_ID, 45, -1, 8)).text() == COLD
    assert explained(driver, image, Request(STREAM_ID, 45, 65, 8)).text() == WARM


def test_a_space_separates_a_long_offset_from_what_is_said_of_it() -> None:
    image = image_of({STREAM_ID: (4, -1)}, {4: [1]})
    contents = {1: make_ranges([(STREAM_ID, 1_000_000, 1_000_010)])}
    lines = explained(telling(contents), image, Request(STREAM_ID, 1_000_005, -1, 8)).text().splitlines()
    assert "at 1000005 node 4 owns [0, ...) and lists 1 object" in lines


def test_a_round_says_what_commits_excluded_beyond_the_filters() -> None:
    image, contents = world()
    driver = telling(contents)
    assert driver.known is not None
    driver.known.add_filters(4, [(2, StreamFilter.build(np.array([8])))])
    lacking = np.isin(np.arange(10), [2, 3])  # of 3 it is a lie, to be told apart from the filter
    told = replace(image, nodes={4: replace(image.nodes[4], facts=Told({STREAM_ID: lacking}))})
    round_one = explained(driver, told, Request(STREAM_ID, 45, 50, 8)).text().splitlines()[7]
    assert round_one == "         10 listed - 1 by filter - 1 by the list = 8 candidates"


def test_an_object_that_could_not_be_opened_is_a_warning() -> None:
    image, contents = world()
    driver = telling(contents)
    driver.broken[4] = CorruptObject("k4", 100, expected="a footer", found="none")
    assert explained(driver, image, Request(STREAM_ID, 15, 30, 8), "load-all").text() == BROKEN


def test_a_round_that_nobody_waited_for_claims_nothing_of_its_objects() -> None:
    image, contents = world()
    driver = telling(contents)
    driver.stop_after_rounds = 1
    told = explained(driver, image, Request(STREAM_ID, 45, 50, 8), "window+preload:2")
    assert told.text() == LATE
    assert [each["finished"] for each in told.to_dict()["events"] if each["event"] == "round"] == [True, False]


def test_what_filters_exclude_is_subtracted_and_holes_inside_are_named() -> None:
    image, contents = world()
    known = index_cache()
    for number in (0, 3, 4):
        contents[number] = make_ranges([(8, 0, 5)])
        known.add_filters(4, [(number, StreamFilter.build(np.array([8])))])
    contents[5] = make_ranges([(STREAM_ID, 40, 50)], {STREAM_ID})
    assert explained(Telling(contents, known), image, Request(STREAM_ID, 45, 50, 8)).text() == FILTERED


def test_plain_data_is_json_with_these_keys() -> None:
    image, contents = world()
    told = explained(telling(contents), image, Request(STREAM_ID, 45, -1, 8))
    found = json.loads(told.to_json())
    assert found == told.to_dict()
    assert list(found) == ["request", "policy", "image_versions", "answer", "error", "cost", "hints", "events"]
    assert list(found["answer"]) == ["objects", "start_offset", "end_offset", "ending", "resume_offset", "stream_end"]
    assert found["cost"] == {
        "rounds": 3,
        "requests": 6,
        "bytes": 600,
        "seconds": 0.0312,
        "requests_if_everything_was_opened": 10,
    }
    assert found["answer"]["objects"][-1] == {
        "object_id": 90,
        "kind": "stream",
        "node_id": None,
        "start": 90,
        "end": 97,
        "known_from": "image",
    }
    # Scripts read these names: they stay when a class gets another one.
    assert list(EVENT_NAMES.values()) == ["hopped", "picked", "round", "hintread", "ended"]
    assert {event["event"] for event in found["events"]} <= set(EVENT_NAMES.values())
    hopped = next(event for event in found["events"] if event["event"] == "hopped")
    assert list(hopped) == ["event", "offset", "owned", "listed_objects"]
    [first, *_] = [each for each in found["events"] if each["event"] == "round"]
    assert first["opened"][1] == {
        "position": 5,
        "object_id": 5,
        "order_id": 5,
        "held": {"start": 40, "end": 50, "holed": False},
        "error": None,
        "came": True,
    }


@pytest.mark.parametrize("objects", [1, 79, 80, 81, 500, 5000])
@pytest.mark.parametrize("policy", ["load-all", "window", "window+preload", "spread"])
def test_a_story_of_any_list_fits_a_terminal(objects: int, policy: str) -> None:
    image, contents = world(objects)
    text = explained(telling(contents), image, Request(STREAM_ID, 0, -1, 4), policy).text()
    assert max(map(len, text.splitlines())) <= WIDTH + 8
    assert len(text.splitlines()) < 60


def answered(ending: Ending, objects: tuple[FoundObject, ...] = ()) -> Answer:
    return Answer(Request(1, 5), objects, ending, 5, 0)


def test_a_search_that_began_again_answers_with_what_its_last_search_took() -> None:
    image, contents = world()
    driver, request = telling(contents), Request(STREAM_ID, 45, 65, 8)
    driver.trace = Trace()
    driver.trace.record_start(image.version)
    look_up(image, driver, request, policy=policy_of("spread:3"), trace=driver.trace)
    driver.trace.record_start(image.version)
    answer = look_up(image, driver, request, policy=policy_of("spread:3"), trace=driver.trace)
    told = Explanation(request, answer, driver.trace, 0.0, "spread").to_dict()
    objects = [
        (each["object_id"], each["start"], each["end"], each["known_from"]) for each in told["answer"]["objects"]
    ]
    assert objects == [(5, 40, 50, "opened"), (6, 50, 60, "opened"), (7, 60, 70, "opened")]
    assert [each["event"] for each in told["events"]].count("picked") == 6


def test_an_answer_without_objects_says_what_it_lacks() -> None:
    assert answer_text(answered(Ending.HOLE)) == "no object: no listed object holds offset 5"
    assert answer_text(answered(Ending.LIMIT)) == "no object; the limit is reached"
    assert ending_text(answered(Ending.PARTIAL)) == "partial: the caller's limit was reached first, continue at 5"


def test_one_object_is_told_in_the_singular() -> None:
    found = FoundObject(Kind.STREAM, ObjectRef(9), 5, 8)
    assert answer_text(answered(Ending.END, (found,))) == "1 object holds [5, 8); the end is reached"
