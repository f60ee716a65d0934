"""Entries of the audit trail about runs and requests to people, which are stored with the records of the runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from greenroom.audit.acting import caller_fields
from greenroom.log.state import log_state_of
from greenroom.records.audit import AuditAction, AuditEntry, new_entry
from greenroom.records.base import JsonValue
from greenroom.records.content import Content
from greenroom.records.human_requests import responses_in
from greenroom.records.inbox import Answerer, HumanRequest, RequestKind, RequestStatus
from greenroom.records.run import Caller, Run
from greenroom.records.session import Session
from greenroom.runner.runner import Runner
from greenroom.runs.runner_cache import version_of


def run_entry(action: AuditAction, run: Run, runner: Runner, caller: Caller | None) -> AuditEntry:
    """An entry about the start or the continuation of a run. caller: None if nobody asked for it."""
    return new_entry(
        action, **caller_fields(caller), **_names_of(run), app_version=run.app_version, model=_model_of(runner)
    )


def answer_entries(
    requests: Sequence[HumanRequest],
    message: Content | None,
    runner: Runner,
    *,
    session: Session,
    caller: Caller | None,
    answerer: Answerer | None,
) -> list[AuditEntry]:
    """Entries about answers to requests to people.

    message: with the answers. session: with the log in which the requests are. caller: see `run_entry`.
    answerer: None if a deadline's default answers.
    """
    who = caller_fields(caller)
    payloads = {response.id: (response.response or {}).get("payload") for response in responses_in(message)}
    entries: list[AuditEntry] = []
    for request in requests:
        payload = payloads.get(request.call_id) if request.kind is RequestKind.APPROVAL else None
        entry = new_entry(
            "request.answered",
            **who,
            **_of_request(request),
            payload_digest=digest_of(payload) if payload is not None else None,
            answered_by=answerer.user_id if answerer is not None else None,
            decision=_decision_of(request),
            app_version=version_of(runner),
            model=_model_of(runner, request.agent),
            model_version=_model_version_of(request, session),
        )
        entries.append(entry)
    return entries


def delegation_entry(request: HumanRequest) -> AuditEntry:
    """An entry about the newest delegation of a request."""
    newest = request.delegations[-1]
    return new_entry(
        "request.delegated",
        **caller_fields(None),
        **_of_request(request),
        answered_by=newest.from_user_id,
        decision=newest.to_user_id,
    )


def digest_of(value: JsonValue) -> str:
    """The SHA-256 of a value's JSON with sorted keys and without spaces."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


def _names_of(run: Run) -> dict[str, Any]:
    return {
        "app_name": run.app_name,
        "user_id": run.user_id,
        "session_id": run.session_id,
        "run_id": run.id,
    }


def _of_request(request: HumanRequest) -> dict[str, Any]:
    return {
        "app_name": request.app_name,
        "user_id": request.user_id,
        "session_id": request.session_id,
        "run_id": request.run_id,
        "request_id": request.id,
        "tool": request.tool,
        "arguments_digest": digest_of(request.arguments) if request.arguments is not None else None,
    }


def _decision_of(request: HumanRequest) -> str:
    """The decision; `counted` if the request needs more answers."""
    confirmed = request.answers[-1].confirmed if request.answers else request.confirmed
    if request.status is RequestStatus.OPEN:
        return "counted as a rejection" if confirmed is False else "counted as an approval"
    if confirmed is None:
        return "answered"
    return "approved" if confirmed else "rejected"


def _model_version_of(request: HumanRequest, session: Session) -> str | None:
    """The version of the model that made the call, as the reply with the call names it."""
    events = session.events
    asked = log_state_of(events).find_request(request.call_id)
    index = asked.made_at if asked is not None and asked.made is not None else None
    if index is None and asked is not None:
        index = asked.index
    return events[index].model_version if index is not None and 0 <= index < len(events) else None


def _model_of(runner: Runner, agent_name: str | None = None) -> str | None:
    """The name of an agent's model, by default the root agent's; None if it has none."""
    agent = runner.agent.find_agent(agent_name) if agent_name is not None else runner.agent
    model = getattr(agent or runner.agent, "model", None) or (runner.app.default_model if runner.app else None)
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) and name else None
