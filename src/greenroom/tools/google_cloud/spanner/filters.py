"""Checks the filter that a model gives a similarity search: only comparisons of columns with constants.

    price < 100 AND (name LIKE 'a%' OR kind IN ('x', 'y'))

is one; functions, subqueries, arithmetic and comments are not. A filter is read by this grammar:

    conditions  = condition (("AND" | "OR") condition)*
    condition   = "(" conditions ")" | operand [comparison]
    comparison  = operator constant | "IS" ["NOT"] constant | ["NOT"] "LIKE" constant
                | ["NOT"] "IN" "(" constant ("," constant)* ")" | ["NOT"] "BETWEEN" constant "AND" constant
"""

from __future__ import annotations

import re

from greenroom.errors import ToolError

_MAX_DEPTH = 10
_PART = r"(?:[A-Za-z_][A-Za-z0-9_]*|`[^`\\\n]+`|\"[^\"\\\n]+\")"
_NAME = rf"{_PART}(?:\.{_PART})*"
_CONSTANT = r"[+-]?\d+(?:\.\d+)?(?![\w.])|'[^'\\]*'"
_TOKEN = re.compile(rf"\s*(?:(?P<constant>{_CONSTANT})|(?P<name>{_NAME})|(?P<sign><=|>=|!=|<>|[=<>(),]))")
_END = re.compile(r"\s*\Z")
_OPERATORS = frozenset(("=", "!=", "<>", "<", "<=", ">", ">="))
_CONSTANT_WORDS = frozenset(("TRUE", "FALSE", "NULL"))
_WORDS = _CONSTANT_WORDS | {"AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN"}


def check_identifier(name: str) -> str:
    """The name of a table, column or model, with parts in quotes or not. Raises ToolError for anything else."""
    if not re.fullmatch(_NAME, name):
        raise ToolError(f"{name!r} is not the name of a table, column or model")
    return name


def check_filter(text: str) -> str:
    """The filter itself. Raises ToolError for one that is more than comparisons of columns with constants."""
    reader = _FilterReader(text)
    reader.conditions(0)
    if reader.next is not None:
        raise reader.refusal()
    return text


class _FilterReader:
    """next: the token that is read next; keywords in capitals. kind: constant, name, word or sign."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self.next: str | None = None
        self._kind = ""
        self._advance()

    def conditions(self, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise ToolError(f"The filter has more than {_MAX_DEPTH} levels of parentheses")
        self._condition(depth)
        while self.next in ("AND", "OR"):
            self._advance()
            self._condition(depth)

    def refusal(self) -> ToolError:
        where = "its end" if self.next is None else repr(self.next)
        return ToolError(
            f"The filter can't be read at {where}: it may compare columns with numbers, texts in single quotes, TRUE, "
            "FALSE and NULL, by =, !=, <, <=, >, >=, LIKE, IS, IN and BETWEEN, and join conditions by AND and OR"
        )

    def _condition(self, depth: int) -> None:
        if self.next == "(":
            self._advance()
            self.conditions(depth + 1)
            self._expect(")")
            return
        if self._kind not in ("name", "constant"):
            raise self.refusal()
        self._advance()
        self._comparison()

    def _comparison(self) -> None:
        if self.next in _OPERATORS:
            self._advance()
            self._constant()
            return
        if self.next == "IS":
            self._advance()
            self._skip("NOT")
            self._constant()
            return

        is_negated = self._skip("NOT")
        if self._skip("LIKE"):
            self._constant()
        elif self._skip("IN"):
            self._constants()
        elif self._skip("BETWEEN"):
            self._constant()
            self._expect("AND")
            self._constant()
        elif is_negated:
            raise self.refusal()

    def _constants(self) -> None:
        self._expect("(")
        self._constant()
        while self._skip(","):
            self._constant()
        self._expect(")")

    def _constant(self) -> None:
        if self._kind != "constant" and self.next not in _CONSTANT_WORDS:
            raise self.refusal()
        self._advance()

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise self.refusal()

    def _skip(self, token: str) -> bool:
        if self.next != token:
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        if _END.match(self._text, self._position):
            self.next = None
            self._kind = ""
            return
        found = _TOKEN.match(self._text, self._position)
        if found is None:
            self.next = self._text[self._position : self._position + 20].strip()
            raise self.refusal()

        self._position = found.end()
        self._kind = found.lastgroup or ""
        token = str(found[self._kind])
        if self._kind == "name" and token.upper() in _WORDS:
            self._kind = "word"
            token = token.upper()
        self.next = token
