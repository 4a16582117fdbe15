"""Makes the picture of the console that docs/sidecar.md shows: `python -m tests.docs.console_picture`.

It takes Chromium, as the tests of the console do. Its figures are those of a sidecar over a small store in memory.
"""

from __future__ import annotations

import random
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from tests.accel.server.asking import STREAM
from tests.accel.server.browsing import BROWSER, example_store
from tests.accel.server.test_served import served

PICTURE = Path(__file__).parents[2] / "docs" / "img" / "console.png"
SIZE_BYTES_MAX = 150_000
SEED = 7


def main() -> None:
    """Write the picture."""
    if BROWSER is None:
        raise SystemExit("expected chromium in PATH, or ACCEL_TEST_BROWSER, found neither")
    rng = random.Random(SEED)
    with served(example_store()) as sidecar, sync_playwright() as driver:
        for _ in range(30):
            start = rng.choice([200, 600, 3700])
            sidecar.get(f"/v1/objects?stream_id={STREAM}&start={start}&end={start + 200}")
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 700})
        page.goto(f"http://127.0.0.1:{sidecar.port}/")
        page.wait_for_selector("#figures div")
        for name, value in (("Stream", STREAM), ("Start", 1500), ("End, or -1", 1900)):
            page.locator("#read").get_by_label(name).fill(str(value))
        page.get_by_role("button", name="Explain").click()
        expect(page.locator("#map svg .picked").first).to_be_attached()
        page.locator("section").nth(1).screenshot(path=PICTURE)
        browser.close()
    size_bytes = PICTURE.stat().st_size
    if size_bytes > SIZE_BYTES_MAX:
        raise SystemExit(f"expected a picture of at most {SIZE_BYTES_MAX} bytes, found {size_bytes}")


if __name__ == "__main__":
    main()
