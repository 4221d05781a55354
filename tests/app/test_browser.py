"""The page in a real browser: Playwright drives the system's Chromium against a server on localhost."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
VIEWS = ("What-if", "Best K map", "Why", "Acceptance", "Schedule", "Compare", "Accuracy")
LLAMA = "meta-llama/Llama-3.1-8B"
SLOW_MS = 60_000

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
    ),
]
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The app, started as ``rooflinesim app`` starts it."""
    from rooflinesim.cli.app import server_command

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = server_command(port=port, host="localhost", headless=True)
    assert command[0] == sys.executable
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    where = f"http://localhost:{port}"
    try:
        for _ in range(300):
            try:
                with urllib.request.urlopen(f"{where}/_stcore/health", timeout=1):
                    break
            except OSError:
                time.sleep(0.1)
        yield where
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    with sync_api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@contextmanager
def page_at(browser, address: str, query: dict[str, str] | str = "", *, may_err: bool = False, **context):
    """A page in its own profile; a console error, an exception box or a request to another host fails."""
    profile = browser.new_context(**{"viewport": {"width": 1366, "height": 900}, **context})
    page = profile.new_page()
    page.set_default_timeout(SLOW_MS)
    wrong: list[str] = []
    page.on("console", lambda m: wrong.append(f"console: {m.text}") if m.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(f"page error: {error}"))
    page.on("request", lambda r: wrong.append(f"request to {r.url}") if _outside(r.url, address) else None)
    page.goto(f"{address}/?{query if isinstance(query, str) else urlencode(query)}")
    settled(page)
    try:
        yield page
        assert page.get_by_test_id("stException").count() == 0, page.get_by_test_id(
            "stException"
        ).inner_text()
        if not may_err:
            assert wrong == []
    finally:
        profile.close()


def _outside(url: str, address: str) -> bool:
    return url.startswith(("http", "ws")) and not re.match(r"(http|ws)://localhost:", url)


def settled(page) -> None:
    """Until no script runs and nothing is a grey placeholder."""
    page.wait_for_timeout(150)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=SLOW_MS)
    page.wait_for_function(
        "document.querySelectorAll('[data-testid=stSkeleton]').length === 0", timeout=SLOW_MS
    )
    page.wait_for_timeout(150)


def metric(page, label: str) -> str:
    box = page.get_by_test_id("stMetric").filter(has_text=label).first
    return box.get_by_test_id("stMetricValue").inner_text()


def test_no_request_leaves_localhost_is_a_test_that_can_fail():
    assert _outside("https://fonts.example.com/a.woff", "http://localhost:1")
    assert not _outside("http://localhost:1/static/a.js", "http://localhost:1")
    assert not _outside("data:image/png;base64,AA==", "http://localhost:1")


@pytest.mark.parametrize("view", VIEWS)
def test_every_page_opens_clean(browser, address, view):
    with page_at(browser, address, {"view": view}) as page:
        assert page.get_by_role("radio", name=view).get_attribute("aria-checked") == "true"
        assert page.locator("[data-testid=stVegaLiteChart] svg.marks").count() >= 1


@pytest.mark.parametrize(
    "context",
    [
        {"color_scheme": "dark"},
        {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
    ],
    ids=["dark", "phone"],
)
def test_dark_and_phone(browser, address, context):
    with page_at(browser, address, **context) as page:
        width = page.viewport_size["width"]
        wide = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
        assert wide <= width, "the page scrolls sideways"
        chart = page.locator("[data-testid=stVegaLiteChart] svg.marks").first.bounding_box()
        assert chart["x"] + chart["width"] <= width
        dark = page.evaluate(
            "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
        )
        assert (dark != "rgb(255, 255, 255)") is (context.get("color_scheme") == "dark")


def test_a_moved_slider_changes_k_and_the_link(browser, address):
    with page_at(browser, address, {"model": LLAMA, "bs": 1}) as page:
        before = metric(page, "Best choice")
        slider = page.locator(".st-key-bs").get_by_role("slider")
        slider.focus()
        slider.press("End")
        page.wait_for_url("**bs=1024**")
        settled(page)
        assert metric(page, "Best choice") != before


def test_a_shared_link_gives_the_same_page(browser, address):
    with page_at(browser, address, {"model": LLAMA}) as page:
        page.locator(".st-key-ctx").get_by_role("slider").press("ArrowRight")
        page.wait_for_url("**ctx=2048**")
        page.get_by_role("radio", name="Why").click()
        page.wait_for_url("**view=Why**")
        settled(page)
        link = page.url
        first = page.get_by_test_id("stMain").inner_text()
    with page_at(browser, address, link.split("?", 1)[1]) as page:
        assert page.get_by_test_id("stMain").inner_text() == first
        assert page.url == link


def test_a_link_cannot_make_the_page_fetch(browser, address):
    picture = "![x](https://example.com/x.png)"
    with page_at(browser, address, {"gpu": picture, "vs": f"model={picture}", "view": "Compare"}) as page:
        assert picture in page.get_by_test_id("stMain").inner_text()


def test_back_goes_back(browser, address):
    with page_at(browser, address, {"bs": 8}) as page:
        page.get_by_role("radio", name="Why").click()
        page.wait_for_url("**view=Why**")
        settled(page)
        page.goto(f"{address}/?bs=16")
        settled(page)
        page.go_back()
        settled(page)
        assert "view=Why" in page.url
        assert page.get_by_role("radio", name="Why").get_attribute("aria-checked") == "true"


def _upload(page, key: str, *files: Path | dict[str, object]) -> None:
    page.locator(f".st-key-{key} input[type=file]").set_input_files(list(files))
    settled(page)


def _own_data(page) -> None:
    page.get_by_text("Your own data").click()


def test_upload_a_config_and_use_it(browser, address):
    from rooflinesim.api import Scenario, predict

    config = FIXTURES / "hf_configs" / "Qwen--Qwen3-8B.json"
    with page_at(browser, address, {"form": "c1", "c1": "0.7"}) as page:
        _own_data(page)
        _upload(page, "up_model", config)
        page.wait_for_url("**model=upload**")
        settled(page)
        point = predict(Scenario(gpu="h100-sxm", model=str(config), accept="0.7")).points[0]
        assert metric(page, "Largest batch") == f"{point.largest_batch:,}"
        link = page.url
    with page_at(browser, address, link.split("?", 1)[1]) as other:  # another session has no such file
        assert "is not kept; upload it again" in other.get_by_test_id("stAlert").first.inner_text()


def test_upload_a_log_and_see_its_acceptance(browser, address):
    log = FIXTURES / "engine_samples" / "vllm_metrics_after.prom"
    before = FIXTURES / "engine_samples" / "vllm_metrics_before.prom"
    with page_at(browser, address, {"view": "Acceptance", "model": LLAMA}) as page:
        _upload(page, "up_log", before, log)
        assert metric(page, "AL") == "2.410"
        assert "form=file" in page.url


@pytest.mark.parametrize(
    ("key", "name", "content", "says"),
    [
        ("up_gpu", "bomb.yaml", b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "anchors and aliases"),
        ("up_gpu", "deep.yaml", b"[" * 5000, "nested deeper"),
        ("up_gpu", "odd.yaml", b"id: mine\nbandwith: 3\n", "not a known field"),
        ("up_model", "list.json", b"[1, 2]", "a JSON object is expected"),
        ("up_model", "bad.json", b"{", "not JSON"),
        ("up_curve", "x.csv", b"a,b\n1,2\n", "needs the columns rows and ms"),
        ("up_model", "../../etc/passwd.json", b"{}", "empty configuration"),
    ],
)
def test_a_bad_upload_is_refused_in_one_line(browser, address, key, name, content, says):
    with page_at(browser, address) as page:
        before = metric(page, "Best choice")
        _own_data(page)
        _upload(page, key, {"name": name, "mimeType": "text/plain", "buffer": content})
        text = page.locator("[data-testid=stSidebar] [data-testid=stAlert]").first.inner_text()
        assert says in text and "/tmp" not in text and "Traceback" not in text
        assert metric(page, "Best choice") == before


def test_200_mb_is_refused_and_the_server_lives(browser, address, tmp_path):
    big = tmp_path / "big.log"
    with big.open("wb") as handle:
        handle.truncate(200 * 1024**2)
    with page_at(browser, address, {"view": "Acceptance"}, may_err=True) as page:
        _upload(page, "up_log", big)
        assert re.search(r"must be|64\s?MB|too large|exceeds", page.locator(".st-key-up_log").inner_text())
    with urllib.request.urlopen(f"{address}/_stcore/health", timeout=5) as answer:
        assert answer.status == 200


def test_download_the_schedule_and_read_it_back(browser, address, tmp_path):
    with page_at(browser, address, {"view": "Schedule", "model": LLAMA}) as page:
        with page.expect_download() as started:
            page.get_by_role("button", name="Download speculative_config.json").click()
        file = tmp_path / started.value.suggested_filename
        started.value.save_as(file)
        assert "num_speculative_tokens_per_batch_size" in json.loads(file.read_text())
        command = [sys.executable, "-m", "rooflinesim", "schedule", "--gpu", "h100-sxm", "--model", LLAMA]
        read = subprocess.run(
            [*command, "--check", str(file), "--json"], capture_output=True, text=True, check=True
        )
        answer = json.loads(read.stdout)
        assert answer["ranges"] == answer["ours"]
        page.get_by_text("Check a schedule you have").click()
        _upload(page, "up_schedule", file)
        assert metric(page, "Read as") == "vllm"


def test_a_chart_gives_csv_and_png(browser, address, tmp_path):
    with page_at(browser, address, {"model": LLAMA}) as page:
        with page.expect_download() as started:
            page.locator(".st-key-csv_speedup_by_k button").first.click()
        started.value.save_as(tmp_path / "a.csv")
        head, *rows = (tmp_path / "a.csv").read_text().splitlines()
        assert "speedup" in head and "step_ms" in head and len(rows) == 9
        page.get_by_test_id("stVegaLiteChart").first.hover()
        with page.expect_download() as started:
            page.get_by_role("button", name="Download as PNG").first.click()
        started.value.save_as(tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_inputs_are_reached_by_keyboard(browser, address):
    with page_at(browser, address) as page:
        seen: set[str] = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            seen.add(
                page.evaluate(
                    "(() => { const at = document.activeElement?.closest('[class*=st-key-]');"
                    " return at ? at.className.match(/st-key-([A-Za-z0-9_]+)/)[1] : ''; })()"
                )
            )
        assert {"gpu", "model", "draft", "engine", "form", "view", "bs", "ctx", "kmax"} <= seen
