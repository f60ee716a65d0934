"""Docstrings begin with a term or a verb."""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def sources(folder: str) -> list[Path]:
    """Python files, without those of installed packages."""
    found = (REPOSITORY / folder).glob("**/*.py")
    return [path for path in found if not {".peers", "node_modules"} & set(path.relative_to(REPOSITORY).parts)]


def docstrings(path: Path) -> list[ast.Constant]:
    """Those of modules, classes and functions, and those below assignments."""
    expressions = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Expr)]
    return [one for one in expressions if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def test_docstrings_begin_with_a_term_or_a_verb() -> None:
    question = re.compile(r"\s*(What|Who|How|Where|When|Which|Why)\b")
    wrong = {
        f"{path.relative_to(REPOSITORY)}:{one.lineno}"
        for folder in ("src/greenroom", "benchmarks", "scripts", "tests")
        for path in sources(folder)
        for one in docstrings(path)
        if question.match(str(one.value))
    }
    assert wrong == set()
