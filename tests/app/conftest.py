"""The page under Streamlit's own test runner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "app" / "streamlit_app.py"

pytest.importorskip("streamlit", reason="streamlit is not installed: pip install rooflinesim[app]")


@pytest.fixture
def open_page() -> Callable[..., object]:
    """Run the page at a link; any exception box fails the test."""
    from streamlit.testing.v1 import AppTest

    def open_at(query: str = "", *, may_err: bool = False) -> AppTest:
        page = AppTest.from_file(str(APP), default_timeout=60)
        for key, value in parse_qsl(query):
            page.query_params[key] = value
        page.run()
        check(page, may_err=may_err)
        return page

    return open_at


def check(page: object, *, may_err: bool = False) -> None:
    """No exception box, and no red box unless one is expected."""
    assert not page.exception, [box.value for box in page.exception]  # type: ignore[attr-defined]
    if not may_err:
        assert not page.error, [box.value for box in page.error]  # type: ignore[attr-defined]
