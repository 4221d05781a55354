"""How fast the what-if page answers, in a real browser: slider to chart (median of 20), and first load.

    python validation/bench/app_latency.py [--chromium /usr/bin/chromium] [--json]

Starts its own server on a free port of localhost, and a headless Chromium through Playwright (``pip install
playwright``; no browser of its own is downloaded). A move is timed from the key press on the batch slider to
the first frame in which the drawing of the watched chart has changed. Targets: 0.3 s and 4 s on two cores.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
#: The drawing of the first chart, as text that changes with every mark.
DRAWING = """(() => {
  const svg = document.querySelector('[data-testid=stVegaLiteChart] svg.marks');
  return svg ? svg.innerHTML : '';
})()"""


@contextmanager
def server() -> Any:
    """The app on a free port; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", str(ROOT / "app" / "streamlit_app.py")]
    options = ["--server.headless=true", "--server.address=localhost", f"--server.port={port}"]
    process = subprocess.Popen(
        [*command, *options], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://localhost:{port}"
    try:
        for _ in range(200):
            try:
                with urllib.request.urlopen(f"{address}/_stcore/health", timeout=1):
                    break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_changed(page: Any, before: str) -> None:
    """Until the drawing differs, looked at once per frame."""
    page.evaluate(
        f"""before => new Promise((done, fail) => {{
          const end = performance.now() + 10000;
          const look = () => {{
            const now = {DRAWING};
            if (now && now !== before) done(); else if (performance.now() > end) fail('no change in 10 s');
            else requestAnimationFrame(look);
          }};
          look();
        }})""",
        before,
    )


def first_load(browser: Any, address: str, query: str = "") -> float:
    """Seconds from the address to a drawn chart, in a fresh browser profile."""
    page = browser.new_context(viewport={"width": 1366, "height": 900}).new_page()
    start = time.perf_counter()
    page.goto(f"{address}/?{query}")
    wait_changed(page, "")
    took = time.perf_counter() - start
    page.context.close()
    return took


def moves(browser: Any, address: str, *, n: int, query: str = "") -> list[float]:
    """Seconds of ``n`` moves of the batch slider, up and down again."""
    page = browser.new_context(viewport={"width": 1366, "height": 900}).new_page()
    page.goto(f"{address}/?{query}")
    wait_changed(page, "")
    page.wait_for_timeout(1500)
    slider = page.locator(".st-key-bs").get_by_role("slider")
    slider.focus()
    out = []
    for i in range(n + 2):
        before = page.evaluate(DRAWING)
        start = time.perf_counter()
        page.keyboard.press("ArrowLeft" if i % 20 < 10 else "ArrowRight")
        wait_changed(page, before)
        out.append(time.perf_counter() - start)
        page.wait_for_timeout(400)
    page.context.close()
    return out[2:]  # the first two warm the caches of the session


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("-n", type=int, default=20)
    parser.add_argument("--query", default="", help="scenario as in the page's link")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with server() as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=arguments.chromium, args=FLAGS)
        cold = first_load(browser, address, arguments.query)
        warm = first_load(browser, address, arguments.query)
        times = moves(browser, address, n=arguments.n, query=arguments.query)
        browser.close()
    report = {
        "first_load_cold_server_s": round(cold, 3),
        "first_load_warm_server_s": round(warm, 3),
        "slider_to_chart_median_s": round(statistics.median(times), 3),
        "slider_to_chart_worst_s": round(max(times), 3),
        "n": len(times),
        "target_s": {"slider_to_chart_median": 0.3, "first_load": 4.0},
    }
    if arguments.json:
        print(json.dumps(report))
        return
    print(f"first load    {cold:.2f} s on a fresh server, {warm:.2f} s later (target 4 s)")
    print(
        f"slider→chart  median {statistics.median(times) * 1e3:.0f} ms of {len(times)}, "
        f"worst {max(times) * 1e3:.0f} ms (target 300 ms)"
    )


if __name__ == "__main__":
    main()
