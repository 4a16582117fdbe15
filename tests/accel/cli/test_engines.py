"""Engines that packages offer to the jobs of `accel catalog`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from accel.cli import engines
from accel.cli.engines import Engine, InThisProcess, engine_options
from accel.cli.options import command, store_options
from accel.rendering import Output


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that offers an engine that cannot be loaded."""
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[accel.engines]\nray = a_package_that_nobody_has:options\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    engines._offered.cache_clear()
    yield
    engines._offered.cache_clear()


@pytest.mark.usefixtures("stranger")
def test_an_engine_that_cannot_be_loaded_says_why_and_others_work() -> None:
    used: list[Engine] = []

    @command("Do it.", "accel do")
    @store_options
    @engine_options()
    def do(*, engine: Engine, output: Output) -> None:
        output.note("done")
        used.append(engine)

    assert CliRunner().invoke(do, ["memory://here"]).exit_code == 0
    assert isinstance(used[0], InThisProcess)
    refused = CliRunner().invoke(do, ["memory://here", "--ray"])
    assert refused.exit_code == 2
    assert "No module named 'a_package_that_nobody_has'" in " ".join(refused.stderr.split())
    assert len(used) == 1
