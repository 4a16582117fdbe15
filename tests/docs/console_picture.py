"""Makes the pictures of the console that README and docs show: `python -m tests.docs.console_picture`.

    docs/img/console.png           a map with a read on it, light; a wide window
    docs/img/console-dark.png      the same, dark
    docs/img/console-history.png   a history with its cuts and truncation, light
    docs/img/console-phone.png     a map at the width of a phone, dark

It takes Chromium, as the tests of the console do. The figures are those of a sidecar over a small store in memory.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final, Literal

from playwright.sync_api import Browser, expect, sync_playwright

from tests.accel.server.asking import STREAM
from tests.accel.server.browsing import BROWSER, Shown, example_store, shown

FOLDER: Final = Path(__file__).parents[2] / "docs" / "img"
SIZE_BYTES_MAX: Final = 150_000
SEED: Final = 7
PICTURES: Final[dict[str, tuple[int, Literal["light", "dark"], int]]] = {
    "console.png": (1000, "light", 1),
    "console-dark.png": (1000, "dark", 1),
    "console-history.png": (1000, "light", 2),
    "console-phone.png": (390, "dark", 1),
}
"""Name -> width of the window, colours, and which section of the page."""


def picture(browser: Browser, name: str) -> Path:
    """Write one of the pictures; gives where it is."""
    width, colours, section = PICTURES[name]
    rng = random.Random(SEED)
    with shown(browser, example_store(), viewport={"width": width, "height": 700}, color_scheme=colours) as one:
        for _ in range(30):
            start = rng.choice([200, 600, 3700])
            one.sidecar.get(f"/v1/objects?stream_id={STREAM}&start={start}&end={start + 200}")
        _draw(one)
        path = FOLDER / name
        one.page.locator("section").nth(section).screenshot(path=path)
    return path


def _draw(one: Shown) -> None:
    one.explain(STREAM, 1500, 1900)
    expect(one.page.locator("#map figure .picked").first).to_be_attached()
    one.history("shop", "orders")
    expect(one.page.locator("#epochs svg path.cut")).to_be_attached()
    one.page.locator("h1").click()  # no field has the focus


def main() -> None:
    """Write the pictures."""
    if BROWSER is None:
        raise SystemExit("expected chromium in PATH, or ACCEL_TEST_BROWSER, found neither")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        sizes = {name: picture(browser, name).stat().st_size for name in PICTURES}
        browser.close()
    large = {name: size_bytes for name, size_bytes in sizes.items() if size_bytes > SIZE_BYTES_MAX}
    if large:
        raise SystemExit(f"expected pictures of at most {SIZE_BYTES_MAX} bytes, found {large}")


if __name__ == "__main__":
    main()
