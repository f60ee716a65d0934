"""The docstrings below the fields of classes are read from the source."""

from __future__ import annotations

import ast
import gc
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from greenroom.server.field_docstrings import field_docstrings


class Base:
    """Text of the class. name: not a field's docstring."""

    name: str = ""
    """The name,
    on two lines."""
    undocumented: int = 0
    if TYPE_CHECKING:
        author: str = ""
    else:
        author: str
        """The author."""

    class Inner:
        depth: int = 0
        """Levels above this one."""

    def method(self) -> str:
        """Not a field."""
        return self.name


class Derived(Base):
    age: int = 0
    """In years."""


def test_docstrings_below_fields_are_found() -> None:
    class Local:
        place: str = ""
        """In a function."""

    assert field_docstrings(Base) == {"name": "The name, on two lines.", "author": "The author."}
    assert field_docstrings(Base.Inner) == {"depth": "Levels above this one."}
    assert field_docstrings(Local) == {"place": "In a function."}
    assert field_docstrings(Derived) == {"age": "In years."}, "those of bases are left out"


def test_classes_without_source_have_none() -> None:
    assert field_docstrings(int) == {}
    assert field_docstrings(type("Made", (), {"__module__": "not.imported"})) == {}


def test_another_parser_may_run_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython before 3.11.8 fails when a garbage collection within `ast.parse` parses something else."""
    fields = "".join(f"    field_{number}: int = {number}\n    'Text {number}.'\n" for number in range(500))
    (tmp_path / "many_fields.py").write_text(f"class Many:\n{fields}")
    monkeypatch.syspath_prepend(tmp_path)
    many: type = import_module("many_fields").Many
    interrupted: list[str] = []

    def parse_once(phase: str, _: dict[str, int]) -> None:
        frame = sys._getframe(1)
        if not interrupted and frame.f_code is ast.parse.__code__:
            interrupted.append(phase)
            ast.parse("first = second(third)")

    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    gc.callbacks.append(parse_once)

    try:
        found = field_docstrings(many)
    finally:
        gc.callbacks.remove(parse_once)
        gc.set_threshold(*thresholds)

    assert interrupted, "a collection ran within ast.parse"
    assert found == {f"field_{number}": f"Text {number}." for number in range(500)}
