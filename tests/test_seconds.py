"""The check of how long the tests of a folder take, in runs of tests of its own."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

BUSY = """
import time

def test_it():
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
"""


@pytest.mark.parametrize("options", [(), ("-n1",)], ids=["one process", "a worker"])
def test_a_run_fails_that_took_more_seconds_in_a_folder_than_it_has(
    options: tuple[str, ...], pytester: pytest.Pytester
) -> None:
    pytester.makeconftest(
        """
        from tests.seconds import FolderSeconds

        def pytest_configure(config):
            config.pluginmanager.register(FolderSeconds())
        """
    )
    for number, folder in enumerate(("tests/bloom", "of_nobody")):
        path = pytester.path / folder / f"test_{number}.py"
        path.parent.mkdir(parents=True)
        path.write_text(BUSY)
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    told = [line for line in result.outlines if "s of CPU time" in line]
    assert [line.partition(",")[0] for line in told] == ["of_nobody: expected tests that take at most 0 s of CPU time"]
    assert pytester.runpytest_inprocess(*options, "tests/bloom").ret == pytest.ExitCode.OK
