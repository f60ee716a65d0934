"""Counts the work of PostgreSQL: the statements of a test, and the rows that their plans read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import asyncpg
import pytest

from greenroom.records.base import JsonObject

_EXPLAINED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


class Statement(NamedTuple):
    text: str
    arguments: Sequence[Any]


class PostgresWork:
    """Of all connections that were opened since `counting` began."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []

    def reset(self) -> None:
        self.statements = []

    def record(self, query: Any) -> None:
        if query.query.lstrip().upper().startswith(_EXPLAINED):
            self.statements.append(Statement(query.query, query.args or ()))


@contextlib.contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Generator[PostgresWork]:
    """Counts from now on, on connections that are opened from now on."""
    work = PostgresWork()
    initialize = asyncpg.Connection.__init__

    def watched(connection: Any, *arguments: Any, **options: Any) -> None:
        initialize(connection, *arguments, **options)
        connection.add_query_logger(work.record)

    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "__init__", watched)
        yield work


class Plans(NamedTuple):
    """rows: that the queries read, their writes not included. scans: nodes that read a whole table."""

    rows: int
    scans: list[str]


async def plans(connection: asyncpg.Connection, statements: Iterable[Statement], tables: Sequence[str]) -> Plans:
    """Plans the statements again, and carries out those that only read.

    A small table is scanned for less than an index costs; here only tables are that have no index for the statement.
    """
    await connection.execute("SET enable_seqscan = off")
    rows = 0
    scans: list[str] = []
    for text, arguments in statements:
        only_reads = text.lstrip().upper().startswith("SELECT")
        options = "ANALYZE, FORMAT JSON" if only_reads else "FORMAT JSON"
        (found,) = json.loads(str(await connection.fetchval(f"EXPLAIN ({options}) {text}", *arguments)))
        for node in _nodes(found["Plan"]):
            if "Scan" in node["Node Type"] and "Actual Rows" in node:
                rows += (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            if node["Node Type"] == "Seq Scan" and node["Relation Name"] in tables:
                scans.append(f"{node['Relation Name']}: {text}")
    return Plans(int(rows), scans)


def _nodes(plan: JsonObject) -> Iterator[JsonObject]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
