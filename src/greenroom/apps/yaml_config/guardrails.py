"""The guardrails in the settings of an app in YAML."""

from __future__ import annotations

from collections.abc import Iterator

from greenroom.apps.yaml_config.construct import construct
from greenroom.apps.yaml_config.document import ConfigNode
from greenroom.apps.yaml_config.keys import entries_of, name_and_args
from greenroom.apps.yaml_config.reader import ConfigReader
from greenroom.plugins.guardrails.check import Action, GuardrailCheck
from greenroom.plugins.guardrails.plugin import GuardrailPlugin

_KEYS = ("checks", "on_violation", "reply")

_PLAIN = frozenset({"PatternCheck", "AllowedTools", "AllowedHosts"})
"""Checks that call nothing outside of the process: files that are not trusted may give them arguments, too."""


def read_guardrails(node: ConfigNode, reader: ConfigReader) -> GuardrailPlugin:
    """Raises ConfigFileError, and any exception of the app's own modules."""
    fields = entries_of(node, _KEYS, what="of guardrails")
    listed = list(check_nodes(node))
    if not listed:
        raise node.error("needs a list of checks")
    checks = [
        reader.instance(item, GuardrailCheck, trusts_args=name_and_args(item)[0].text in _PLAIN) for item in listed
    ]

    action: Action = "block"
    if "on_violation" in fields:
        action = reader.read(fields["on_violation"], Action)
    reply = fields["reply"].text if "reply" in fields else None
    return construct(node, "the plugin", lambda: GuardrailPlugin(checks, on_violation=action, reply=reply))


def check_nodes(node: ConfigNode) -> Iterator[ConfigNode]:
    """Yields the entries of the list of checks."""
    checks = entries_of(node, _KEYS, what="of guardrails").get("checks")
    if checks is not None and checks.value is not None:
        yield from checks.items
