# pyright: basic, reportMissingImports=false
"""Hooks of MkDocs, which is installed only in the environment of `make docs`.

Pages are named by their path in the repository, so that links between them work as they do in the repository. Files of
the source that pages link to become pages that show them. Addresses leave out `docs/`: `docs/tools.md` is `tools/`.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from scripts.docs_site.reference import reference_pages

ROOT = Path(__file__).parents[2]

_OUTSIDE = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/RESULTS.md",
    "examples/README.md",
)
"""Pages outside of docs/."""

_REFERENCE = "docs/reference/"
_MERMAID = ROOT / ".uv" / "mermaid" / "mermaid.min.js"
"""Written by `make docs`. Without it, readers' browsers load Mermaid from unpkg.com."""
_MERMAID_PATH = "assets/mermaid.min.js"
_FULL_SIZE = '%%{init: {"sequence": {"useMaxWidth": false, "width": 110, "actorMargin": 16}}}%%'
"""Sequence diagrams that are wider than the page are scrolled. Mermaid would shrink them until nobody can read them."""

_CELL = re.compile(r"<td.*?</td>", re.DOTALL)
_CODE = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
_SOURCE_LINK = re.compile(r"(\]\()([^)#:\s]+\.(py|yaml|toml))(\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Generates the reference, and puts all pages of a folder where the navigation names the folder."""
    _generated.clear()
    _generated.update({f"{_REFERENCE}{name}": text for name, text in reference_pages().items()})
    decisions = {f"docs/decisions/{path.name}" for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    config.nav = _with_folders(config.nav, sorted({*_generated, *decisions}))
    return config


_generated: dict[str, str] = {}
"""The text of generated pages by path."""


def _with_folders(nav: Any, pages: list[str]) -> Any:
    if isinstance(nav, dict):
        return {title: _with_folders(value, pages) for title, value in nav.items()}
    if isinstance(nav, list):
        items: list[Any] = []
        for item in nav:
            expanded = _with_folders(item, pages)
            items.extend(expanded if isinstance(expanded, list) else [expanded])
        return items
    return [page for page in pages if page.startswith(nav)] if nav.endswith("/") else nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of docs/ by pages with paths of the repository."""
    paths = [*_OUTSIDE, *(f"docs/{file.src_uri}" for file in files if file.is_documentation_page())]
    pages = [File.generated(config, path, abs_src_path=str(ROOT / path)) for path in paths]
    pages.extend(File.generated(config, path, content=text) for path, text in _generated.items())

    sources = {source for path in paths for source in _linked_sources(path)}
    pages.extend(_source_page(config, source) for source in sorted(sources))
    for page in pages:
        page.dest_uri = page.dest_uri.removeprefix("docs/") if page.src_uri != "docs/README.md" else page.dest_uri

    assets = [file for file in files if not file.is_documentation_page() and not file.src_uri.startswith("snippets/")]
    assets = [_asset(config, file) if file.src_dir == config.docs_dir else file for file in assets]
    assets.append(File.generated(config, "assets/site.css", abs_src_path=str(Path(__file__).with_name("site.css"))))
    if _MERMAID.exists():
        assets.append(File.generated(config, _MERMAID_PATH, abs_src_path=str(_MERMAID)))
    return Files([*pages, *assets])


def _asset(config: MkDocsConfig, file: File) -> File:
    """A picture of docs/, whose path in the repository pages link to."""
    asset = File.generated(config, f"docs/{file.src_uri}", abs_src_path=file.abs_src_path)
    asset.dest_uri = file.dest_uri
    return asset


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to the pages that show files of the source, and draws wide diagrams in a size that can be read."""
    return _SOURCE_LINK.sub(r"\1\2.md\4", markdown).replace("```mermaid\n", f"```mermaid\n{_FULL_SIZE}\n")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lets long names in tables break between their words, and loads Mermaid (3 MB) in pages with diagrams only."""
    html = _CELL.sub(lambda cell: _CODE.sub(_breakable, cell[0]), html)

    script = files.get_file_from_path(_MERMAID_PATH)
    if script is None or 'class="mermaid"' not in html:
        return html
    return f'{html}\n<script src="{script.url_relative_to(page.file)}"></script>'


def _breakable(code: re.Match[str]) -> str:
    return re.sub(r"(?<=\w)[_/.](?=\w)", r"\g<0><wbr>", code[0])


def _linked_sources(path: str) -> list[str]:
    folder = posixpath.dirname(path)
    links = _SOURCE_LINK.findall((ROOT / path).read_text())
    return [posixpath.normpath(posixpath.join(folder, target)) for _, target, _, _ in links]


def _source_page(config: MkDocsConfig, path: str) -> File:
    """A page that shows a file. The navigation leaves it out."""
    language = {"py": "python"}.get(path.rpartition(".")[2], path.rpartition(".")[2])
    text = f"# `{path}`\n\n````{language}\n{(ROOT / path).read_text()}\n````\n"
    return File.generated(config, f"{path}.md", content=text, inclusion=InclusionLevel.NOT_IN_NAV)
