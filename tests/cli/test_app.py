"""``rooflinesim app``: what the server is started with."""

from __future__ import annotations

import importlib.util

import pytest

from rooflinesim.cli.app import app_command, app_file, server_command
from rooflinesim.errors import InputError

pytest.importorskip("streamlit", reason="streamlit is not installed: pip install rooflinesim[app]")


def test_local_quiet_and_limited():
    command = server_command(port=8765, host="localhost", headless=True)
    for flag in (
        "--server.address=localhost",
        "--server.port=8765",
        "--server.headless=true",
        "--browser.gatherUsageStats=false",
        "--server.showEmailPrompt=false",
        "--server.maxUploadSize=64",
        "--server.allowedHosts=localhost",
    ):
        assert flag in command
    assert str(app_file()) in command and app_file().is_file()


def test_every_flag_is_one_that_streamlit_knows():
    from streamlit import config

    known = set(config.get_config_options())
    flags = [
        word for word in server_command(port=1, host="localhost", headless=False) if word.startswith("--")
    ]
    assert flags and {flag[2:].split("=")[0] for flag in flags} <= known


def test_the_apps_own_settings_say_the_same():
    """``streamlit run app/streamlit_app.py`` must be as quiet and as local as ``rooflinesim app``."""
    import tomllib

    settings = tomllib.loads((app_file().parent / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    command = server_command(port=1, host="localhost", headless=True)
    for section in ("server", "browser", "client", "runner"):
        for key, value in settings[section].items():
            for item in value if isinstance(value, list) else [value]:
                text = str(item).lower() if isinstance(item, bool) else str(item)
                assert f"--{section}.{key}={text}" in command


def test_another_host_is_allowed_but_said(monkeypatch, capsys):
    import subprocess

    import typer

    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0))
    with pytest.raises(typer.Exit):
        app_command(port=8501, host="0.0.0.0", browser=False)
    assert "there is no login" in capsys.readouterr().err
    assert not any("allowedHosts" in word for word in server_command(port=1, host="0.0.0.0", headless=True))


def test_without_streamlit_the_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install .rooflinesim\[app\]"):
        app_command(port=8501, host="localhost", browser=False)
