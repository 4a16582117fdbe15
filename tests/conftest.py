"""Fixtures and settings that all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.examples import examples

pytest_plugins = ["tests.servers.fixtures"]  # one server for the whole session

# Machines that run tests are shared: a slow example is no failure. A test that names no number of examples has written
# hypothesis's own 100.
settings.register_profile(
    "accel",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("accel")
