"""A report of problems, with the entries of logs and the faults at that time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from greenroom.records.session import SessionKey
from tests.durability.invariants import calls_of, responses_of, text_of
from tests.replicas.chaos.checks import Problem
from tests.replicas.chaos.client import Json
from tests.replicas.chaos.faults import FAULTS
from tests.replicas.chaos.journal import Entry, Journal
from tests.replicas.chaos.store import StoredSession

SHOWN = 4
"""Number of problems that are shown in full; the file has all."""

_MARGIN_SECONDS = 5.0
_EXCERPT = 160


def report_of(
    problems: Iterable[Problem], stored: Mapping[SessionKey, StoredSession], journal: Journal, folder: Path
) -> str:
    """The first problems, with the name of a file that has all of them."""
    sections = [_section(problem, stored, journal) for problem in problems]
    path = folder / "report.txt"
    path.write_text("\n\n".join(sections))
    more = f"\n\n{len(sections) - SHOWN} more" if len(sections) > SHOWN else ""
    shown = "\n\n".join(sections[:SHOWN])
    return f"{len(sections)} problems; all are in {path}, logs of servers in {folder}/server-*/log\n\n{shown}{more}"


def _section(problem: Problem, stored: Mapping[SessionKey, StoredSession], journal: Journal) -> str:
    lines = [f"{problem.client or ''} {problem.session or ''}: {problem.what}"]
    session = stored.get(problem.session) if problem.session is not None else None
    own = journal.of(problem.client) if problem.client is not None else []
    times = [entry.time for entry in own]
    if session is not None:
        times += [event["timestamp"] for event in session.log]
        for run_id, record in session.runs.items():
            kept = ("status", "attempts", "createdAt", "startedAt", "endedAt", "error", "messageAfterSeq", "afterSeq")
            lines.append(f"  run {run_id}: { ({name: record.get(name) for name in kept}) }")
        lines += [f"  {seq:3} {line_of(event)}" for seq, event in enumerate(session.log, 1)]
        lines += [f"  ledger: {json.dumps(line)}" for line in session.ledger]
    if times:
        begin = min(times) - _MARGIN_SECONDS
        end = max(times) + _MARGIN_SECONDS
        entries: list[Entry] = [*own, *journal.around(begin, end, who=FAULTS)]
        lines += [f"  {entry}" for entry in sorted(entries)]
    return "\n".join(lines)


def tracebacks_in(log: str) -> list[str]:
    """Tracebacks in a server's log: each is an error that nobody has handled."""
    return [match[0][-1500:] for match in re.finditer(r"Traceback.*(?:\n[ ].*)*\n.*", log)]


def line_of(event: Json) -> str:
    """An event of a log in one line."""
    parts = [f"calls {call['name']} {call['id']}" for call in calls_of(event)]
    parts += [f"answers {one['id']} {json.dumps(one['response'])[:80]}" for one in responses_of(event)]
    if text := text_of(event):
        parts.append(repr(text[:60]))
    parts += [name for name in ("turnComplete", "interrupted", "partial") if event.get(name)]
    if event.get("errorCode"):
        parts.append(f"{event['errorCode']}: {event.get('errorMessage')}")
    moment = f"{event['timestamp'] % 3600:8.3f}"
    return f"{moment} {event['author']} {event['invocationId']} {'; '.join(parts)}"[:_EXCERPT]
