"""Requirements of tests beside Python: a browser, node, servers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

from greenroom.environments import pyodide

_DOWNLOADED = Path(__file__).parents[1] / ".uv"
"""The folder of what `make` has downloaded."""


def skip_or_fail(reason: str) -> NoReturn:
    """Skips the test; fails it where GREENROOM_REQUIRE_ALL is 1, so that CI leaves none out unnoticed."""
    if os.environ.get("GREENROOM_REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def browser_path() -> str:
    """An installed Chromium, Chrome or Edge; skips the test, or fails it, without one."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "msedge")
    found = next((path for name in names if (path := shutil.which(name))), None)
    return found or skip_or_fail("There is no Chromium, Chrome or Edge; `make browser` installs one")


def helm_path() -> str:
    """Helm: that of `make deploy-tools`, or an installed one; skips the test, or fails it, without one."""
    return _tool("helm", "helm/helm/helm") or skip_or_fail("There is no helm; `make deploy-tools` downloads it")


def traefik_path() -> str:
    """Traefik, as `helm_path`."""
    return _tool("traefik", "traefik/bin/traefik") or skip_or_fail(
        "There is no traefik; `make deploy-tools` downloads it"
    )


def prometheus_path() -> str:
    """An installed Prometheus; skips the test, or fails it, without one."""
    return shutil.which("prometheus") or skip_or_fail("There is no prometheus; `make prometheus` installs it")


def promtool_path() -> str:
    """Prometheus's tool, as `prometheus_path`."""
    return shutil.which("promtool") or skip_or_fail("There is no promtool; `make prometheus` installs it")


def kubernetes_models() -> tuple[str, Path]:
    """Node, and the packages with schemas of KEDA and of the Prometheus operator; skips the test, or fails it, without
    them."""
    node = _DOWNLOADED / "node" / "bin" / "node"
    packages = _DOWNLOADED / "kubernetes-models" / "node_modules"
    if not node.exists() or not packages.is_dir():
        skip_or_fail("There are no schemas of KEDA; `make deploy-tools` downloads them")
    return str(node), packages


def _tool(name: str, path: str) -> str | None:
    own = _DOWNLOADED / path
    return str(own) if own.is_file() else shutil.which(name)


def browser_flags() -> list[str]:
    return ["--no-sandbox"] if os.geteuid() == 0 else []


def require_desktop() -> None:
    """Skips the test, or fails it, without the programs of a desktop and its editor."""
    missing = [name for name in ("Xvfb", "xdotool", "maim", "mousepad") if shutil.which(name) is None]
    if missing:
        skip_or_fail(f"There is no {', '.join(missing)}; `make desktop` installs them")


def require_bubblewrap() -> None:
    """Skips the test, or fails it, without bubblewrap."""
    if shutil.which("bwrap") is None:
        skip_or_fail("There is no bubblewrap; `make sandboxes` installs it")


def require_pyodide() -> None:
    """Skips the test, or fails it, where no WebAssembly sandbox can be started."""
    if not pyodide.is_installed():
        skip_or_fail("There is no Pyodide; `make pyodide` downloads it")
