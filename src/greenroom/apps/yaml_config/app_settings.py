"""The settings of an app in YAML, in a file beside its root agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from greenroom.apps.app import OnVersionChange
from greenroom.apps.yaml_config.document import ConfigFile, ConfigNode, did_you_mean, read_document
from greenroom.apps.yaml_config.keys import entries_of
from greenroom.apps.yaml_config.reader import ConfigReader
from greenroom.apps.yaml_config.schedules import read_schedule
from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.plugins.plugin import BasePlugin
from greenroom.records import wire
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.run import MAX_PRIORITY, Webhook
from greenroom.records.run_judge import RunJudge
from greenroom.records.schedule import Schedule
from greenroom.records.webhook_delivery import check_webhook
from greenroom.redaction.patterns import TextPattern
from greenroom.redaction.rules import Redaction

_KEYS = (
    "on_version_change", "priority", "webhooks", "approvals", "schedules", "redaction", "guardrails", "judges",
    "session_ttl_seconds", "expires_waiting_runs",
)  # fmt: skip


@dataclass(frozen=True)
class AppSettings:
    """The fields of an `App` that its file of settings may have."""

    on_version_change: OnVersionChange = "continue"
    priority: int = 0
    webhooks: list[Webhook] = field(default_factory=list[Webhook])
    approvals: ApprovalPolicy | None = None
    schedules: list[Schedule] = field(default_factory=list[Schedule])
    redaction: Redaction | None = None
    plugins: list[BasePlugin] = field(default_factory=list[BasePlugin])
    judges: list[RunJudge] = field(default_factory=list[RunJudge])
    session_ttl_seconds: float | None = None
    expires_waiting_runs: bool = False


def read_app_settings(file: ConfigFile, reader: ConfigReader) -> AppSettings:
    """Raises ConfigFileError, and any exception of the app's own modules.

    reader: finds the code that the file names.
    """
    root = entries_of(read_document(file), _KEYS, what="of an app's settings")
    policy: OnVersionChange = "continue"
    if "on_version_change" in root:
        policy = _policy(root["on_version_change"])

    priority = _priority(root["priority"]) if "priority" in root else 0
    listed = root.get("webhooks")
    webhooks = [] if listed is None or listed.value is None else [_webhook(node) for node in listed.items]
    approvals = root.get("approvals")
    scheduled = root.get("schedules")
    redaction = root.get("redaction")
    return AppSettings(
        policy,
        priority,
        webhooks,
        _approvals(approvals) if approvals is not None else None,
        [] if scheduled is None or scheduled.value is None else [read_schedule(node) for node in scheduled.items],
        _redaction(redaction, reader) if redaction is not None else None,
        [_guardrails(root["guardrails"], reader)] if "guardrails" in root else [],
        [_judge(node) for node in root["judges"].items] if "judges" in root else [],
        session_ttl_seconds=_seconds(root["session_ttl_seconds"]) if "session_ttl_seconds" in root else None,
        expires_waiting_runs="expires_waiting_runs" in root and reader.read(root["expires_waiting_runs"], bool),
    )


def _policy(node: ConfigNode) -> OnVersionChange:
    policies = get_args(OnVersionChange)
    if node.text not in policies:
        raise node.error(f"there is no such policy: {node.text!r}{did_you_mean(node.text, policies)}")
    return cast("OnVersionChange", node.text)


def _priority(node: ConfigNode) -> int:
    value = node.plain()
    if type(value) is not int or not -MAX_PRIORITY <= value <= MAX_PRIORITY:
        raise node.error(f"the priority must be a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
    return value


def _seconds(node: ConfigNode) -> float:
    value = node.plain()
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise node.error("must be a number of seconds, more than 0")
    return float(value)


def _webhook(node: ConfigNode) -> Webhook:
    fields = entries_of(node, ["id", "url", "states"], what="of a webhook")
    plain: dict[str, Any] = {key: entry.plain() for key, entry in fields.items()}
    try:
        webhook = wire.from_plain(plain, Webhook)
        check_webhook(webhook)
    except InvalidRequest as error:
        named = fields.get(str(error.location[0]) if error.location else "", node)
        raise named.error(error.detail) from None
    return webhook


def _approvals(node: ConfigNode) -> ApprovalPolicy:
    fields = entries_of(node, ApprovalPolicy.__struct_fields__, what="of a policy of approvals")
    try:
        return wire.from_plain({key: entry.plain() for key, entry in fields.items()}, ApprovalPolicy)
    except (AgentConfigError, InvalidRequest) as error:
        raise node.error(error.detail) from None


def _redaction(node: ConfigNode, reader: ConfigReader) -> Redaction:
    entries = entries_of(node, ["fields", "patterns", "finders"], what="of the redaction")
    fields = [field.text for field in entries["fields"].items] if "fields" in entries else []
    patterns = [_pattern(pattern) for pattern in entries["patterns"].items] if "patterns" in entries else []
    finders = [reader.read(finder, Callable) for finder in entries["finders"].items] if "finders" in entries else []
    try:
        return Redaction(fields=fields, patterns=patterns, finders=finders)
    except AgentConfigError as error:
        raise node.error(error.detail) from None


def _pattern(node: ConfigNode) -> TextPattern:
    """The name of a ready-made pattern, or a name with an expression."""
    try:
        if isinstance(node.value, str):
            return TextPattern(node.value)
        entries = entries_of(node, ["name", "expression"], what="of a pattern")
        if "name" not in entries:
            raise node.error("a pattern needs a name")
        expression = entries.get("expression")
        return TextPattern(entries["name"].text, expression.text if expression is not None else None)
    except AgentConfigError as error:
        raise node.error(error.detail) from None


def _judge(node: ConfigNode) -> RunJudge:
    fields = entries_of(node, RunJudge.__struct_fields__, what="of a judge")
    try:
        return wire.from_plain({key: entry.plain() for key, entry in fields.items()}, RunJudge)
    except (AgentConfigError, InvalidRequest) as error:
        raise node.error(error.detail) from None


def _guardrails(node: ConfigNode, reader: ConfigReader) -> BasePlugin:
    # Imported only for apps with guardrails.
    from greenroom.apps.yaml_config.guardrails import read_guardrails

    return read_guardrails(node, reader)
