"""The packages in environments of their own, without the checkout.

Locked versions of dependencies are installed. `make test` tries the wheel with the Python of the tests; with
GREENROOM_PACKAGES=1, as in `make test-packages`, the source distribution, each Python that this machine has, and each
extra are tried too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from greenroom.version import __version__
from tests.packaging.build import ROOT, Packages
from tests.packaging.installation import Installation

pytestmark = pytest.mark.slow

_EVERYTHING = os.environ.get("GREENROOM_PACKAGES") == "1"

_OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
_VERSIONS = ("3.11", "3.12", "3.13", "3.14") if _EVERYTHING else (_OWN,)

EXTRAS = {
    "a2a": ["a2a", "agents.remote_a2a", "gates.a2a"],
    "anthropic": ["models.anthropic"],
    "audit": ["audit"],
    "auth": ["server.access"],
    "browser": ["tools.computer_use"],
    "client": ["client"],
    "container": ["environments.container", "environments.container_engine"],
    "daytona": ["environments.daytona"],
    "e2b": ["environments.e2b"],
    "embeddings": ["memory.signatures"],
    "encryption": ["encryption.aes", "encryption.streams"],
    "eval": ["evaluation.metrics"],
    "fastapi": ["cli.fast_api"],
    "firestore": ["google_cloud.firestore", "sessions.firestore"],
    "gemini": ["embeddings.gemini", "models.gemini"],
    "google": ["google_cloud.credentials", "google_cloud.vertex"],
    "kubernetes": ["code_executors.gke"],
    "langchain": ["models.langchain"],
    "langgraph": ["agents.frameworks.langgraph"],
    "litellm": ["models.lite_llm"],
    "local": ["embeddings.local", "models.local"],
    "mcp": ["gates.mcp", "tools.mcp"],
    "oauth": ["tools.login"],
    "openai": ["embeddings.openai", "models.openai"],
    "openai-agents": ["agents.frameworks.openai_agents"],
    "openapi": ["tools.openapi", "tools.web"],
    "opensandbox": ["environments.opensandbox"],
    "pydantic-ai": ["agents.frameworks.pydantic_ai"],
    "postgres": ["postgres", "sessions.postgres"],
    "telemetry": ["server.prometheus", "telemetry"],
    "temporal": ["temporal"],
    "wasm": ["environments.pyodide", "environments.webassembly"],
    "webhooks": ["server.webhook_sender"],
}
"""The modules and packages of greenroom that need each extra."""

_MESSAGE = {
    "appName": "orders",
    "userId": "ada",
    "sessionId": "s-1",
    "newMessage": {"role": "user", "parts": [{"text": "2 lamps"}]},
}


@pytest.mark.parametrize("kind", ["wheel", "source"] if _EVERYTHING else ["wheel"])
@pytest.mark.parametrize("version", _VERSIONS)
def test_a_first_answer_needs_nothing_but_the_package(
    packages: Packages, constraints: Path, tmp_path: Path, version: str, kind: str
) -> None:
    installed = Installation(tmp_path, _interpreter(version))
    installed.install(str(getattr(packages, kind)), constraints)
    assert installed("greenroom", "--version").strip() == __version__
    assert installed.run_code("import greenroom; print(greenroom.__file__)").startswith(str(tmp_path))

    code = "import sys; before = set(sys.modules); import greenroom; print(*sys.modules.keys() - before)"
    loaded = {name.partition(".")[0] for name in installed.run_code(code).split()}
    assert loaded - sys.stdlib_module_names == {"greenroom"}
    assert installed.run_code("import greenroom; [getattr(greenroom, name) for name in greenroom.__all__]") == ""

    installed("greenroom", "init", "agents/orders", "--template", "workflow")
    assert "Accepted: 2 lamps." in installed("greenroom", "run", "agents/orders", "2 lamps")

    server = installed.start("greenroom", "serve", "agents", "--port", "0")
    try:
        url = _url_in(server)
        page = _read(f"{url}/dev-ui/")
        assert '<div id="root">' in page
        [script] = re.findall(r'src="(/dev-ui/assets/[^"]+\.js)"', page)
        assert len(_read(url + script)) > 100_000
        _read(f"{url}/apps/orders/users/ada/sessions/s-1", {})
        events: Any = json.loads(_read(f"{url}/run", _MESSAGE))
        texts = [part.get("text") for event in events if event.get("content") for part in event["content"]["parts"]]
        assert "Accepted: 2 lamps." in texts
    finally:
        server.terminate()
        server.communicate(timeout=30)
    assert server.returncode == 0


@pytest.mark.parametrize("extra", sorted(EXTRAS) if _EVERYTHING else ["client"])
@pytest.mark.parametrize("version", _VERSIONS)
def test_an_extra_installs_all_that_its_modules_import(
    packages: Packages, constraints: Path, tmp_path: Path, version: str, extra: str
) -> None:
    installed = Installation(tmp_path, _interpreter(version))
    installed.install(f"greenroom[{extra}] @ {packages.wheel.as_uri()}", constraints)
    installed.environment.pop("PYTHONWARNINGS")  # other packages' warnings are theirs
    script = str(Path(__file__).with_name("extra_imports.py"))
    modules = [f"greenroom.{name}" for name in EXTRAS[extra]]
    for module in modules:
        installed.run_code(f"import {module}")
    assert installed("python", "-I", script, extra, *modules) == ""


def test_each_extra_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert EXTRAS.keys() == project["optional-dependencies"].keys()


def test_this_machine_has_a_supported_python() -> None:
    assert any(_find_interpreter(version) for version in ("3.11", "3.12", "3.13", "3.14"))


def _interpreter(version: str) -> str:
    return _find_interpreter(version) or pytest.skip(f"There is no Python {version} on PATH or in ~/.pyenv/versions")


def _find_interpreter(version: str) -> str | None:
    candidates: list[str] = [str(Path(sys.executable).resolve())] if version == _OWN else []
    candidates += filter(None, [shutil.which(f"python{version}")])
    candidates += map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True))
    for candidate in candidates:
        # A shim of pyenv is there for versions that are not selected, too, and fails.
        code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        if done.stdout.strip() == version:
            return candidate
    return None


def _url_in(server: subprocess.Popen[str]) -> str:
    """The address that a starting server shows."""
    assert server.stdout is not None
    shown = ""
    for line in server.stdout:
        shown += line
        found = re.search(r"web page +(http://[\d.:]+)/", line)
        if found:
            return found[1]
    raise AssertionError(shown)


def _read(url: str, body: dict[str, Any] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read().decode()
