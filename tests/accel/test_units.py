"""Sizes and times as people write them: one grammar for every option."""

from __future__ import annotations

import pytest

from accel.units import parse_size, parse_time


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("512", 512),
        ("512 B", 512),
        ("1.5KiB", 1536),
        ("64MiB", 64 << 20),
        ("64MB", 64_000_000),
        ("10 kB", 10_000),
        ("2GB", 2_000_000_000),
        ("1TiB", 1 << 40),
        ("1GiB 512MiB", 1536 << 20),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2.5", 2.5),
        ("500ms", 0.5),
        ("10m", 600.0),
        ("10 min", 600.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("1d12h", 129_600.0),
        ("2w", 1_209_600.0),
        (" 1m30.5s ", 90.5),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "soon",
        "-1s",
        "1h30",
        "30m1h",
        "1h1h",
        "1H",
        "10M",
        "1 0s",
        "1e3s",
        "1m1min",
        "9" * 400,
        "9" * 400 + "s",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time such as 10m"):
        parse_time(text)


@pytest.mark.parametrize(
    "text", ["", "64M", "64mib", "MiB", "-1", "1 KiB 2 MiB", "1MiB 5", "0x10", "\u0661MiB", "9" * 400, "9" * 400 + "B"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a size such as 64MiB \(B, KiB, MiB, GiB, TiB, KB"):
        parse_size(text)
