"""Fixtures and settings that all tests share."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import signal
from functools import cache

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import examples
from tests.seconds import FolderSeconds, is_long, unknown_of

pytest_plugins = ["tests.servers.fixtures"]  # one server for the whole session

# Machines that run tests are shared: a slow example is no failure. A test that names no number of examples has written
# hypothesis's own 100.
settings.register_profile(
    "accel", max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("accel")


@pytest.hookimpl(optionalhook=True)  # runs without pytest-xdist have no such hook
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three processes for two cores: half of the time a test waits for a server, a process or a timer."""
    del config
    return max(2, 3 * (os.cpu_count() or 2) // 2)


def pytest_configure(config: pytest.Config) -> None:
    """Lets processes be ended by signals that whoever started the tests ignores, as in a background job of a shell.

    And counts the seconds of folders, in runs of tests as `make test` has them.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # The doctor asks for this, which reads the files of all packages.
    importlib.metadata.packages_distributions = cache(importlib.metadata.packages_distributions)
    if config.option.markexpr == "not soak" and examples(5) == 1:
        config.pluginmanager.register(FolderSeconds())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the long tests; in a run of all tests but those of `--ignore`, what is named among them has to exist."""
    for item in items:
        if is_long(item.nodeid):
            item.add_marker("soak")
    if config.args != config.getini("testpaths"):
        return
    ignored = tuple(f"{folder}/" for folder in config.getoption("ignore") or ())
    unknown = [name for name in unknown_of([item.nodeid for item in items]) if not name.startswith(ignored)]
    if unknown:
        raise pytest.UsageError(f"tests/seconds.py: expected names of tests and of their cases, found {unknown}")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Takes modules and collected tests out of what the garbage collector looks through.

    There are millions of these objects, and they live as long as the session: each full collection would go through
    them again, which took an eighth of the time of all tests.
    """
    del session
    gc.collect()
    gc.freeze()
