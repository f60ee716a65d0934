"""Names of files, classes, functions, arguments and fields use the standard terms of the field, docstrings begin plainly."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

PRIVATE_WORDS = {
    "arrival": "admission",
    "asking": "pending request, human input",
    "bent": "rewritten",
    "bender": "rewriter",
    "bending": "rewriting",
    "crowd": "burst",
    "crowded": "saturated",
    "farewell": "close code",
    "grants": "decided calls, scopes",
    "lane": "queue",
    "lanes": "queues",
    "outbox": "channel",
    "pace": "scheduler",
    "place": "seq (of an event), path, position",
    "places": "seqs, paths, positions",
    "relay": "channel",
    "room": "package",
    "rooms": "packages",
    "shelf": "catalog",
    "standing": "progress, resume point",
    "stretch": "attempt, segment",
    "surroundings": "dependencies, context",
    "tell": "report, notify",
    "tells": "reports",
    "told": "reported",
    "untold": "pending",
    "whoever": "caller",
}

ALLOWED = {"place_id"}  # a field of the Gemini API
ORDINARY_IN_TESTS = {"asking", "grants", "place", "places", "room"}


def sources(folder: str) -> list[Path]:
    """Python files, without those of installed packages."""
    found = (REPOSITORY / folder).glob("**/*.py")
    return [path for path in found if not {".peers", "node_modules"} & set(path.relative_to(REPOSITORY).parts)]


def names(path: Path) -> list[str]:
    found = [path.stem]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(node.name)
        elif isinstance(node, ast.arg):
            found.append(node.arg)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.append(node.target.id)
    return found


def words(name: str) -> set[str]:
    return {word.lower() for part in name.split("_") for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", part)}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("RunPlaces", {"run", "places"}), ("_look_at", {"look", "at"}), ("HTTPServer", {"http", "server"})],
)
def test_names_are_split_into_words(name: str, expected: set[str]) -> None:
    assert words(name) == expected


def test_names_use_no_private_words() -> None:
    wrong = {
        f"{path.relative_to(REPOSITORY)}: {name}: {word} → {PRIVATE_WORDS[word]}"
        for folder in ("src/greenroom", "benchmarks", "tests")
        for path in sources(folder)
        for name in names(path)
        if name not in ALLOWED
        for word in words(name) & PRIVATE_WORDS.keys() - (ORDINARY_IN_TESTS if folder == "tests" else set())
    }
    assert wrong == set()


def docstrings(path: Path) -> list[ast.Constant]:
    """Those of modules, classes and functions, and those below assignments."""
    expressions = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Expr)]
    return [one for one in expressions if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def test_docstrings_begin_with_a_term_or_a_verb() -> None:
    question = re.compile(r"\s*(What|Who|How|Where|When|Which|Why)\b")
    wrong = {
        f"{path.relative_to(REPOSITORY)}:{one.lineno}"
        for folder in ("src/greenroom", "benchmarks", "tests")
        for path in sources(folder)
        for one in docstrings(path)
        if question.match(str(one.value))
    }
    assert wrong == set()
