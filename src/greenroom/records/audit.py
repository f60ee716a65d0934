"""Entries of the audit trail, and their canonical form, over which hashes are computed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from greenroom.records.base import Record

AuditAction: TypeAlias = Literal[
    "access.refused",
    "app.changed",
    "app.traffic.changed",
    "app.version.deleted",
    "app.version.published",
    "app.webhook.changed",
    "app.webhook.deleted",
    "artifact.changed",
    "artifact.deleted",
    "audit.read",
    "budget.changed",
    "budget.deleted",
    "credential.revoked",
    "data.read",
    "evaluation.changed",
    "guardrail.asked",
    "guardrail.blocked",
    "guardrail.redacted",
    "head.signed",
    "key.created",
    "key.revoked",
    "memory.changed",
    "memory.deleted",
    "request.answered",
    "request.delegated",
    "role.changed",
    "role.deleted",
    "run.cancelled",
    "run.continued",
    "run.retried",
    "run.signaled",
    "run.started",
    "run.webhook.changed",
    "run.webhook.deleted",
    "schedule.changed",
    "schedule.created",
    "schedule.deleted",
    "schedule.paused",
    "schedule.resumed",
    "schedule.started",
    "server.started",
    "server.stopped",
    "service_account.changed",
    "service_account.deleted",
    "session.changed",
    "session.created",
    "session.deleted",
    "session.expired",
    "session.forked",
    "session.rewound",
    "trail.broken",
    "trail.cut",
    "user.deleted",
    "user.exported",
    "webhook.redelivered",
    "webhook.tested",
]
"""Actions. The list is closed: an auditor knows what can occur in a trail."""

AuditOutcome: TypeAlias = Literal["success", "refused"]

FIRST_PREVIOUS = "0" * 64
"""`previous` of a chain's first entry."""


class ChainHead(Record, kw_only=True):
    """An entry of a chain, by its place and its hash: the newest one when another chain's head was signed, or the first
    one after a cut.
    """

    chain: int
    """The number of the chain."""
    sequence: int
    """The sequence number of the entry."""
    hash: str
    """The hash of the entry."""


class AuditEntry(Record, kw_only=True):
    """One line of the audit trail: who did what to what, when, and what came of it."""

    action: AuditAction
    """The kind of the entry."""
    outcome: AuditOutcome
    """Whether it was done, or refused."""
    time: int
    """Unix time of the server in milliseconds."""

    subject: str | None = None
    """The user of the key or token that was sent; none without authentication, and for the server itself."""
    key_id: str | None = None
    """The id of the API key that was sent."""
    http_request_id: str | None = None
    """`X-Request-Id` of the HTTP request, or a random id; the same in all entries of one request."""

    app_name: str | None = None
    """The app that it concerns."""
    user_id: str | None = None
    """The user whose data it concerns."""
    session_id: str | None = None
    """The session that it concerns."""
    run_id: str | None = None
    """The run that it concerns."""
    request_id: str | None = None
    """The request to a person that was answered or delegated."""
    target: str | None = None
    """Another thing that it concerns: the id of a webhook, schedule, credential or key, the name of an artifact; of a
    refused or reading request its method and path; of a broken trail what is wrong; of a change of traffic the shares
    of the versions."""

    status: int | None = None
    """The HTTP status of a refusal."""
    error: str | None = None
    """The code of the error of a refusal."""
    unrecorded: int | None = None
    """Of a refusal without valid credentials: how many such refusals before it were too many to be recorded."""

    tool: str | None = None
    """The tool of an answered request, or of a call or result that a guardrail has checked."""
    arguments_digest: str | None = None
    """Of an answered request: SHA-256 of the arguments that the person was shown, as JSON with sorted keys."""
    payload_digest: str | None = None
    """Of an approval with a payload, which may be arguments in place of the shown ones: the SHA-256 of its JSON."""
    answered_by: str | None = None
    """The person in whose name a request was answered or delegated; none if a deadline's default answers."""
    decision: str | None = None
    """Of an answer: `approved`, `rejected`, `answered` (no approval), or `counted as an approval` and `counted as a
    rejection` if the request needs more answers. Of a delegation: the other person."""
    app_version: str | None = None
    """The version of the app's code that runs, or was published."""
    model: str | None = None
    """The model of the agent that asks, or of the app's root agent."""
    check: str | None = None
    """Of a guardrail's decision: the name of its check."""
    where: str | None = None
    """Of a guardrail's decision: `user_message`, `model_output`, `tool_arguments` or `tool_results`."""
    decision_id: str | None = None
    """Of a guardrail's decision: its id, which is in the metadata of the run's event, too."""
    call_id: str | None = None
    """Of a guardrail's decision: the id of the call whose arguments or result was checked."""
    model_version: str | None = None
    """Of an answer about a model's call: the version of the model, as its provider has named it with the call."""
    settings_digest: str | None = None
    """Of a start of a server: SHA-256 of its settings, so that a change of settings shows."""

    cuts: list[ChainHead] | None = None
    """Of a cut: by chain, the first entry that is kept. Earlier ones were removed."""
    heads: list[ChainHead] | None = None
    """Of a signed head: the newest entries of the other chains."""
    signed_by: str | None = None
    """Of a signed head: the first 16 hexadecimal digits of the SHA-256 of the public key's 32 bytes."""

    chain: int = 0
    """The number of the chain; each server writes one."""
    sequence: int = 0
    """1 for the first entry of a chain."""
    previous: str = ""
    """`hash` of the chain's entry before; zeros for the first one."""
    hash: str = ""
    """SHA-256 of the entry's canonical JSON without `hash` and `signature`."""
    signature: str | None = None
    """Of a signed head: the Ed25519 signature of `greenroom-audit-head:` and `hash`, in hexadecimal digits."""


class AuditFilter(Record, kw_only=True):
    """Selects entries that match all given values."""

    actions: list[AuditAction] | None = None
    outcome: AuditOutcome | None = None
    subject: str | None = None
    app_names: list[str] | None = None
    user_id: str | None = None
    session_id: str | None = None
    run_id: str | None = None
    time_from: int | None = None
    """Unix milliseconds, included."""
    time_before: int | None = None
    """Unix milliseconds, excluded."""


class AuditState(Record, kw_only=True):
    """The state of the audit trail as a whole."""

    signed: AuditEntry | None = None
    """The newest signed head."""
    broken: AuditEntry | None = None
    """The newest entry `trail.broken`: a server has found that the trail was changed."""


class ListAuditResponse(Record, kw_only=True, omit_defaults=False):
    """A page of the audit trail."""

    entries: list[AuditEntry] = msgspec.field(default_factory=list[AuditEntry])
    """Newest first."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""
    state: AuditState | None = None
    """On the first page."""


def new_entry(action: AuditAction, *, outcome: AuditOutcome = "success", **fields: Any) -> AuditEntry:
    """An entry of this moment. `fields` are those of `AuditEntry`."""
    return AuditEntry(action=action, outcome=outcome, time=int(time.time() * 1000), **fields)


def canonical(value: Mapping[str, Any]) -> str:
    """The canonical JSON of an entry: RFC 8785, for objects of strings, integers, and lists of such objects."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def canonical_body(entry: AuditEntry) -> str:
    """The canonical JSON of an entry without `hash` and `signature`."""
    fields = msgspec.to_builtins(entry)
    fields.pop("hash", None)
    fields.pop("signature", None)
    return canonical(fields)


def hash_of(body: str) -> str:
    """The hash of an entry's canonical JSON."""
    return hashlib.sha256(body.encode()).hexdigest()
