"""The site of the documentation. `make test-site` runs this in an environment of its own, which has MkDocs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("mkdocs", reason="`make test-site` runs it")

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r'(?:href|src)="(?![a-z]+:|//|#)([^"#?]+)')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once; a warning fails the build. With `--quiet`, MkDocs would not count warnings."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_is_in_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md") if path.name != "README.md"]
    assert [str(page) for page in pages if not (site / page.with_suffix("") / "index.html").exists()] == []


def test_links_lead_to_files_of_the_site(site: Path) -> None:
    links = [
        (page, unquote(target))
        for page in site.rglob("index.html")
        for target in _LINK.findall(page.read_text())
        if not target.startswith("/")
    ]
    assert len(links) > 1000
    assert [
        (str(page.relative_to(site)), target)
        for page, target in set(links)
        if not (page.parent / target / ("index.html" if target.endswith((".", "/")) else "")).exists()
    ] == []


def test_links_to_the_source_show_it(site: Path) -> None:
    assert "weather/agent.py/" in (site / "examples" / "index.html").read_text()
    assert "root_agent" in (site / "examples" / "weather" / "agent.py" / "index.html").read_text()


def test_the_reference_has_commands_operations_and_names(site: Path) -> None:
    reference = site / "reference"
    commands = re.sub(r"<[^>]+>", "", (reference / "command-line" / "index.html").read_text())
    assert "greenroom serve [OPTIONS] DIR" in commands
    assert "POST /run_sse" in (reference / "http" / "runs" / "index.html").read_text()
    assert "POST /v1/chat/completions" in (reference / "http" / "openai" / "index.html").read_text()
    assert "/.well-known/agent-card.json" in (reference / "http" / "a2a" / "index.html").read_text()
    assert 'id="agentrunrequest"' in (reference / "http" / "records" / "index.html").read_text()
    agents = (reference / "python" / "agents" / "index.html").read_text()
    assert 'id="greenroom.agents.llm_agent.LlmAgent"' in agents
    assert 'id="greenroom.agents.llm_agent.LlmAgent.instruction"' in agents  # a field of its base class


def test_pages_of_the_python_api_can_be_read(site: Path) -> None:
    pages = list((site / "reference" / "python").rglob("index.html"))
    assert len(pages) > 30
    assert max(page.read_text().count("<h2 ") for page in pages) <= 60


def test_pages_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert {"tutorial/1-first-agent/", "runs/", "reference/command-line/"} <= {
        entry["location"] for entry in index["docs"]
    }


def test_diagrams_are_drawn_from_the_text_of_pages(site: Path) -> None:
    text = (site / "ARCHITECTURE" / "index.html").read_text()
    assert text.count('<pre class="mermaid"><code>') == (ROOT / "ARCHITECTURE.md").read_text().count("```mermaid") > 0
