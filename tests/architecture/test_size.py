"""Limits of the source: lines of code, files, and the longest file."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

MAX_CODE_LINES = 47_500
MAX_FILES = 487
MAX_LINES_PER_FILE = 450

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """Lines without blank ones, comments, docstrings and imports."""
    ignored: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr)) and _is_no_code(node):
            ignored.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - ignored)


def _is_no_code(node: ast.Import | ast.ImportFrom | ast.Expr) -> bool:
    """True of imports, and of strings that stand alone: docstrings of modules, classes, functions and fields."""
    if not isinstance(node, ast.Expr):
        return True
    return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def python_files() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_blank_lines_comments_docstrings_and_imports_are_not_code() -> None:
    text = '"""Doc."""\n\nimport os\nfrom a import (\n    b,\n)\n\n# why\nX = [\n    1,\n]\n"""Of X."""\n\n\ndef f():\n    "doc"\n    return """two\nlines"""\n'
    assert code_lines(text) == 3 + 1 + 2


def test_source_has_no_more_code_than_the_limit() -> None:
    assert sum(code_lines(path.read_text()) for path in python_files()) <= MAX_CODE_LINES


def test_source_has_no_more_files_than_the_limit() -> None:
    assert len(python_files()) <= MAX_FILES


def test_no_file_is_longer_than_the_limit() -> None:
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in python_files()}
    assert {name: length for name, length in lengths.items() if length > MAX_LINES_PER_FILE} == {}
