"""Fixtures and settings that all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.servers.fixtures"]  # one server for the whole session

# Machines that run tests are shared: a slow example is no failure.
settings.register_profile("accel", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("accel")
