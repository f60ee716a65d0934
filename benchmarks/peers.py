"""ADK in an environment of its own, next to ours: made once, kept in benchmarks/.peers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PEERS = Path(__file__).parent / ".peers"
SHOWN_PACKAGES = ("uvicorn", "starlette", "uvloop", "httptools", "pydantic", "msgspec")


def adk_environment() -> Path:
    """Installs google-adk as `pip install google-adk` does. The result is the directory of the environment's
    executables."""
    return _environment("adk", "google-adk")


def adk_database_environment() -> Path:
    """With what `DatabaseSessionService` needs."""
    return _environment("adk-database", "google-adk", "sqlalchemy[asyncio]<3", "aiosqlite", "asyncpg")


def adk_evaluation_environment() -> Path:
    """With what `adk eval` needs."""
    return _environment("adk-evaluation", "google-adk[eval]")


def tuned_adk_environment() -> Path:
    """The same with uvicorn's fast parts, and the extra whose absence costs a failing import every turn.

    Source of the latter: google-adk 2.13, google/adk/workflow/utils/_workflow_graph_utils.py, build_node.
    """
    return _environment("adk-tuned", "google-adk[a2a]", "uvloop", "httptools")


def _environment(name: str, *requirements: str) -> Path:
    """Made with the newest versions if it isn't there yet."""
    environment = PEERS / name
    executables = environment / "bin"
    if not (executables / "adk").exists():
        uv = _uv()
        if uv:
            _call(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(environment))
        else:
            _call(sys.executable, "-m", "venv", "--clear", str(environment))
        _call(*_pip_install(executables), *requirements)
    return executables


def _uv() -> str | None:
    """`uv run` tells its path in UV."""
    return os.environ.get("UV") or shutil.which("uv")


def _pip_install(executables: Path) -> list[str]:
    python = str(executables / "python")
    uv = _uv()
    if uv:
        return [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python]
    return [python, "-m", "pip", "install", "--quiet"]


def _call(*command: str) -> None:
    subprocess.run(command, check=True)


_SHOW_VERSIONS = """
import sys
from importlib import metadata
found = {d.metadata["Name"].lower(): d.version for d in metadata.distributions()}
print(", ".join(f"{name} {found[name]}" for name in sys.argv[1:] if name in found))
"""


def _versions(python: str, names: Sequence[str]) -> str:
    shown = subprocess.run([python, "-c", _SHOW_VERSIONS, *names], check=True, capture_output=True, text=True)
    return shown.stdout.strip()


def adk_versions(executables: Path) -> str:
    return _versions(str(executables / "python"), ("google-adk", *SHOWN_PACKAGES))


def greenroom_versions() -> str:
    """With the commit, when run from a checkout."""
    found = _versions(sys.executable, ("greenroom", *SHOWN_PACKAGES))
    describe = ["git", "describe", "--always", "--dirty"]
    git = subprocess.run(describe, cwd=PEERS.parent, capture_output=True, text=True, check=False)
    return f"{found}; commit {git.stdout.strip()}" if git.returncode == 0 else found
