"""Paths, modules, names and targets of make in the pages for contributors exist in the source."""

from __future__ import annotations

import builtins
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "greenroom"
DOCS = ROOT / "docs"

PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.glob("decisions/*.md")),
    *sorted(DOCS.glob("how-to/*.md")),
]

_PATH = re.compile(r"`([\w-]+(?:/[\w.-]+)*/|[\w./-]*[\w-]+\.(?:py|md|toml|sql|yaml))`")
_PARTICIPANT = re.compile(r"participant \w+ as ([\w/.]+(?:/|\.py))")
_MODULE = re.compile(r"`(greenroom(?:\.\w+)+)`")
_NAME = re.compile(r"`([A-Z]\w*[a-z]\w*)(?:\.\w+)*(?:\([^`]*\))?`|`(\w+)\(\)`")
_PLACED = re.compile(r"`([A-Za-z]\w+)(?:\.\w+)*(?:\(\))?` (?:\(|of |in )`([\w/]+\.py)`")
_TARGET = re.compile(r"`make ([a-z-]+)")


def text_of(page: Path) -> str:
    """The README is about the source in one section only."""
    text = page.read_text()
    return text.partition("## Reading the source")[2] if page.name == "README.md" and page.parent == ROOT else text


def found(pattern: re.Pattern[str]) -> Iterable[tuple[str, str]]:
    """The page's name with each match."""
    for page in PAGES:
        for match in pattern.finditer(text_of(page)):
            yield page.name, next(group for group in match.groups() if group)


def exists(path: str) -> bool:
    return (SOURCE / path).exists() or (ROOT / path).exists()


def content_of(path: str) -> str:
    return next(folder / path for folder in (SOURCE, ROOT) if (folder / path).exists()).read_text()


def test_paths_are_there() -> None:
    named = [*found(_PATH), *found(_PARTICIPANT)]
    assert len(named) > 100
    assert [(page, path) for page, path in named if not exists(path)] == []


def test_modules_are_there() -> None:
    paths = [(page, module.replace(".", "/").removeprefix("greenroom/")) for page, module in found(_MODULE)]
    assert [(page, path) for page, path in paths if not exists(path) and not exists(f"{path}.py")] == []


def test_names_are_in_the_source() -> None:
    sources = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    words = {word for path in sources for word in re.findall(r"\w+", path.read_text())} | set(dir(builtins))
    assert [(page, name) for page, name in found(_NAME) if name not in words] == []


def test_names_are_where_pages_say() -> None:
    placed = [
        (page.name, name, path)
        for page in PAGES
        for name, path in _PLACED.findall(re.sub(r"\s+", " ", text_of(page)))
        if exists(path)
    ]
    assert len(placed) > 20
    assert [one for one in placed if not re.search(rf"\b{one[1]}\b", content_of(one[2]))] == []


def test_targets_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert [(page, target) for page, target in found(_TARGET) if target not in targets] == []


def test_the_index_lists_every_page() -> None:
    index = (DOCS / "README.md").read_text()
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path.name != "README.md"]
    decisions = (DOCS / "decisions" / "README.md").read_text()
    listed = {
        *re.findall(r"\]\(([\w./-]+\.md)", index),
        *(f"decisions/{path}" for path in re.findall(r"\]\(([\w-]+\.md)", decisions)),
    }
    assert sorted(set(pages) - listed) == []


def test_the_installation_page_lists_each_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = re.findall(r"^\| `([\w-]+)` \|", text_of(DOCS / "installation.md"), re.MULTILINE)
    assert listed == sorted(project["optional-dependencies"])
