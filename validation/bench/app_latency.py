"""How fast the what-if page answers, in a real browser: slider to chart (median of 20), and first load.

    python validation/bench/app_latency.py [--chromium /usr/bin/chromium] [--json]

Starts its own server on a free port of localhost, and a headless Chromium through Playwright (``pip install
playwright``; no browser of its own is downloaded). A move is timed from the key press on the batch slider to
the first frame in which the drawing of the watched chart has changed. Targets: 0.3 s and 4 s on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rooflinesim.cli.app import server_command

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
#: The lines of the first chart, as text that changes when one of its points moves.
DRAWING = """(() => {
  const lines = document.querySelectorAll('[data-testid=stVegaLiteChart] svg.marks');
  if (!lines.length) return '';
  return [...lines[0].querySelectorAll('.mark-line path')].map(path => path.getAttribute('d')).join();
})()"""


@contextmanager
def server() -> Any:
    """The app on a free port; its address and process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = server_command(port=port, host="localhost", headless=True)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://localhost:{port}"
    try:
        for _ in range(200):
            try:
                with urllib.request.urlopen(f"{address}/_stcore/health", timeout=1):
                    break
            except OSError:
                time.sleep(0.1)
        yield address, process
    finally:
        process.terminate()
        process.wait(timeout=20)


def wait_changed(page: Any, before: str) -> None:
    """Until the drawing differs, looked at once per frame."""
    page.evaluate(
        f"""before => new Promise((done, fail) => {{
          const end = performance.now() + 60000;
          const look = () => {{
            const now = {DRAWING};
            if (now && now !== before) done(); else if (performance.now() > end) fail('no change in 60 s');
            else requestAnimationFrame(look);
          }};
          look();
        }})""",
        before,
    )


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    """CPU seconds the server has used; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def page_cpu(session: Any) -> float:
    """CPU seconds the page's main thread has used."""
    metrics = session.send("Performance.getMetrics")["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


def watched(browser: Any) -> tuple[Any, Any]:
    """A page in a fresh profile, and the session that counts its CPU time."""
    page = browser.new_context(viewport={"width": 1366, "height": 900}).new_page()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return page, session


def first_load(browser: Any, address: str, server_process: Any, query: str = "") -> dict[str, float]:
    """Seconds from the address to a drawn chart, in a fresh browser profile; CPU seconds of both sides."""
    page, session = watched(browser)
    before = cpu_of(server_process)
    start = time.perf_counter()
    page.goto(f"{address}/?{query}")
    wait_changed(page, "")
    out = {
        "wall_s": time.perf_counter() - start,
        "page_cpu_s": page_cpu(session),
        "server_cpu_s": cpu_of(server_process) - before,
    }
    page.context.close()
    return out


def moves(
    browser: Any, address: str, server_process: Any, *, n: int, query: str = ""
) -> tuple[list[float], dict[str, float]]:
    """Seconds of ``n`` moves of the batch slider, down and up, and CPU seconds of one move on both sides."""
    page, session = watched(browser)
    page.goto(f"{address}/?{query}")
    wait_changed(page, "")
    page.wait_for_timeout(1500)
    slider = page.locator(".st-key-bs").get_by_role("slider")
    slider.focus()
    out: list[float] = []
    used = (0.0, 0.0)
    for i in range(n + 2):
        if i == 2:  # the first two warm the caches of the session
            used = (page_cpu(session), cpu_of(server_process))
        before = page.evaluate(DRAWING)
        start = time.perf_counter()
        page.keyboard.press("ArrowLeft" if i % 20 < 10 else "ArrowRight")
        wait_changed(page, before)
        out.append(time.perf_counter() - start)
        page.wait_for_timeout(400)
    cpu = {
        "page_cpu_s": (page_cpu(session) - used[0]) / n,
        "server_cpu_s": (cpu_of(server_process) - used[1]) / n,
    }
    page.context.close()
    return out[2:], cpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("-n", type=int, default=20)
    parser.add_argument("--query", default="", help="scenario as in the page's link")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with server() as (address, process), sync_playwright() as play:
        browser = play.chromium.launch(executable_path=arguments.chromium, args=FLAGS)
        cold = first_load(browser, address, process, arguments.query)
        warm = first_load(browser, address, process, arguments.query)
        times, cpu = moves(browser, address, process, n=arguments.n, query=arguments.query)
        browser.close()
    report = {
        "first_load_cold_server": cold,
        "first_load_warm_server": warm,
        "slider_to_chart": {
            "median_s": statistics.median(times),
            "worst_s": max(times),
            "n": len(times),
            **cpu,
        },
        "target_s": {"slider_to_chart_median": 0.3, "first_load": 4.0},
        "load_average": os.getloadavg()[0],
        "cores": os.cpu_count(),
    }
    if arguments.json:
        print(json.dumps(report))
        return
    for name, load in (("fresh server", cold), ("warm server ", warm)):
        print(
            f"first load, {name}  {load['wall_s']:.2f} s (target 4 s); CPU: page {load['page_cpu_s']:.2f} s, "
            f"server {load['server_cpu_s']:.2f} s"
        )
    print(
        f"slider to chart          median {statistics.median(times) * 1e3:.0f} ms of {len(times)}, worst "
        f"{max(times) * 1e3:.0f} ms (target 300 ms); CPU of a move: page {cpu['page_cpu_s'] * 1e3:.0f} ms, "
        f"server {cpu['server_cpu_s'] * 1e3:.0f} ms"
    )
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
