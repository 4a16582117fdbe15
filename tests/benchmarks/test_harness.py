"""Both sides run alternately, must agree, and become one line."""

from __future__ import annotations

import gc
import json

import pytest
from click.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks import indexes
from benchmarks.harness import AnswersDiffer, Comparison, Spread, Timings, interleave


def test_sides_run_alternately_and_the_first_round_is_not_measured() -> None:
    calls: list[str] = []
    timings = interleave(lambda: calls.append("ours"), lambda: calls.append("peer"), rounds=3)
    assert calls == ["ours", "peer"] * 4
    assert len(timings.ours_seconds) == len(timings.peer_seconds) == 3


def test_different_answers_are_refused_and_shown() -> None:
    with pytest.raises(AnswersDiffer, match="ours returned 1, the peer 2"):
        interleave(lambda: 1, lambda: 2, rounds=1)


def test_answers_are_compared_as_the_benchmark_says() -> None:
    interleave(lambda: [2, 1], lambda: {1, 2}, rounds=1, same=lambda ours, peer: set(ours) == peer)  # type: ignore[call-overload]  # both sides are objects to the harness


def test_no_garbage_is_collected_while_a_side_runs_and_it_is_again_afterwards() -> None:
    assert gc.isenabled()
    interleave(gc.isenabled, lambda: False, rounds=1)
    assert gc.isenabled()


def test_fewer_than_one_round_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 round, found 0"):
        interleave(lambda: 1, lambda: 1, rounds=0)


def test_a_line_has_medians_of_one_call_and_how_many_times_better_ours_is() -> None:
    timings = Timings([0.001, 0.004, 0.002], [0.08, 0.02, 0.04])
    line = timings.compare("name", peer="other", unit="us", calls=10, goal=15)
    assert (line.value, line.peer_value, line.ratio, line.runs, line.goal) == (200, 4_000, 20, 3, 15)
    assert line.spread == Spread(100, 400, 150)


def test_json_has_the_seven_fields_and_nothing_else() -> None:
    line = Comparison("name", 2.0, "us", "other", 20.0, 10.0, 7, goal=5, spread=Spread(1, 3, 1))
    assert line.as_json() == {
        "name": "name",
        "value": 2.0,
        "unit": "us",
        "peer": "other",
        "peer_value": 20.0,
        "ratio": 10.0,
        "runs": 7,
    }


def test_the_command_prints_json_and_nothing_else_on_stdout() -> None:
    result = CliRunner().invoke(command.main, ["parse", "--json", "--rounds", "1"])
    assert result.exit_code == 0
    assert [line["name"] for line in json.loads(result.stdout)] == ["parse"]


def test_a_name_that_is_not_there_is_a_usage_error_that_lists_the_names() -> None:
    result = CliRunner().invoke(command.main, ["nothing"])
    assert result.exit_code == 2
    assert "no benchmark nothing; there are: parse, ingest" in result.stderr


def test_different_answers_end_the_command_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def disagree(rounds: int) -> list[Comparison]:
        raise AnswersDiffer(f"round {rounds}")

    monkeypatch.setattr(indexes, "run_parse", disagree)
    result = CliRunner().invoke(command.main, ["parse", "--json"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "parse: round 7" in result.stderr


@pytest.mark.parametrize("name", command.BENCHMARKS)
def test_each_benchmark_can_be_found(name: str) -> None:
    assert callable(command.find_benchmark(name))
