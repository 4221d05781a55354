"""``rooflinesim app``: the what-if page in the browser, served by this machine to this machine."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from rooflinesim.errors import InputError
from rooflinesim.specs.files import spec_root

#: Larger uploads are refused by the server, in MB; the readers have tighter limits of their own.
MAX_UPLOAD_MB = 64
LOCAL = ("localhost", "127.0.0.1", "::1")


def app_file() -> Path:
    """The page's script: in the wheel, else beside the package.

    >>> app_file().name
    'streamlit_app.py'
    """
    return spec_root("app") / "streamlit_app.py"


def server_command(*, port: int, host: str, headless: bool) -> list[str]:
    """The server's command line: this host alone, no statistics sent, nothing watched, uploads limited.

    >>> "--browser.gatherUsageStats=false" in server_command(port=8501, host="localhost", headless=True)
    True
    """
    options = {
        "server.address": host,
        "server.port": port,
        "server.headless": str(headless).lower(),
        "server.maxUploadSize": MAX_UPLOAD_MB,
        "server.fileWatcherType": "none",
        "server.showEmailPrompt": "false",
        "runner.postScriptGC": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorDetails": "type",
        "client.showErrorLinks": "false",
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    if host in LOCAL:  # a page elsewhere cannot reach it under another name
        flags += [f"--server.allowedHosts={name}" for name in LOCAL]
    return [sys.executable, "-m", "rooflinesim.cli.serve", "run", str(app_file()), *flags]


def app_command(
    port: Annotated[int, typer.Option("--port", help="Port.", min=1, max=65535)] = 8501,
    host: Annotated[
        str,
        typer.Option("--host", help="Address to serve on. The default is reached from this machine only."),
    ] = "localhost",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
) -> None:
    """The what-if page: move a slider, see the best K. Runs offline, on this machine; stop with Ctrl-C."""
    if importlib.util.find_spec("streamlit") is None:
        raise InputError('app: streamlit is not installed; pip install "rooflinesim[app]"')
    if host not in LOCAL:
        typer.echo(f"serving on {host}: whoever reaches it can use the page; there is no login", err=True)
    code = subprocess.run(server_command(port=port, host=host, headless=not browser), check=False).returncode
    raise typer.Exit(code)
