"""Guardrails of apps in YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.cli.app_check.config_files import find_in_config
from greenroom.errors import AgentConfigError, AppLoadError, GuardrailBlocked
from greenroom.plugins.guardrails.plugin import GuardrailPlugin
from greenroom.runner.in_memory import InMemoryRunner
from tests.agents.talk import lines_of
from tests.apps.conftest import AgentsDir

AGENT = "name: shop\nmodel_code: {name: .models.model}\ninstruction: Help."
MODELS = """
from greenroom.testing import ScriptedModel

model = ScriptedModel(["Write to ada@example.com about the moon."], loop=True)
"""
CHECKS = r"""
from greenroom import Finding, GuardrailCheck


class NoWord(GuardrailCheck):
    def __init__(self, name: str, word: str, **options) -> None:
        super().__init__(name, **options)
        self.word = word

    async def find(self, text, *, where, ctx, start=0):
        at = text.find(self.word, start)
        return [] if at == -1 else [Finding(at, at + len(self.word), "word")]
"""
SETTINGS = r"""
guardrails:
  onViolation: redact
  reply: I can't say that.
  checks:
    - name: PatternCheck
      args: {name: email}
    - name: PatternCheck
      args: {name: order, expression: '\bO-\d{4}\b', longest_match: 6, where: [user_message], on_violation: block}
    - {name: AllowedTools, args: {allowed: ["search_*"], on_violation: block}}
    - {name: shop.checks.NoWord, args: {name: moon, word: moon}}
"""


def write(agents_dir: AgentsDir, settings: str) -> DirectoryAppLoader:
    agents_dir.write("shop/root_agent.yaml", AGENT)
    agents_dir.write("shop/models.py", MODELS)
    agents_dir.write("shop/checks.py", CHECKS)
    agents_dir.write("shop/app_settings.yaml", settings)
    return DirectoryAppLoader(agents_dir.path)


async def test_guardrails_of_the_settings_act(agents_dir: AgentsDir) -> None:
    app = write(agents_dir, SETTINGS).load("shop")
    assert [type(plugin) for plugin in app.plugins] == [GuardrailPlugin]
    events = await InMemoryRunner(app=app).run_debug(["hi", "Where is O-1234?"], quiet=True)
    assert lines_of(events) == [
        "shop: Write to [redacted: email] about the [redacted: word].",
        "model: I can't say that.",
    ]


async def test_without_a_reply_and_an_action_a_violation_blocks(agents_dir: AgentsDir) -> None:
    app = write(agents_dir, "guardrails: {checks: [{name: PatternCheck, args: {name: email}}]}").load("shop")
    with pytest.raises(GuardrailBlocked):
        await InMemoryRunner(app=app).run_debug("hi", quiet=True)


MISTAKES = [
    ("guardrails:\n  check: []", "did you mean 'checks'"),
    ("guardrails: {checks: []}", "needs a list of checks"),
    (
        "guardrails:\n  on_violation: blok\n  checks: [{name: AllowedTools, args: {allowed: [x]}}]",
        "did you mean 'block'",
    ),
    ("guardrails:\n  checks:\n    - {name: PatternCheck, args: {name: emial}}", "no ready-made pattern 'emial'"),
    ("guardrails:\n  checks:\n    - {name: PatternChek, args: {name: email}}", "no component 'PatternChek'"),
    ("guardrails:\n  checks:\n    - {name: PatternCheck, args: {name: x, expression: '('}}", "no regular expression"),
    ("guardrails:\n  checks:\n    - {name: PatternCheck, args: {name: email, were: [x]}}", "did you mean 'where'"),
    ("guardrails:\n  checks:\n    - {name: PatternCheck, args: {name: email, on_violation: ask}}", "tool calls only"),
]


@pytest.mark.parametrize(("settings", "message"), MISTAKES)
def test_a_mistake_is_named_when_the_app_is_loaded_and_by_the_check_without_running_it(
    agents_dir: AgentsDir, settings: str, message: str
) -> None:
    loader = write(agents_dir, settings)
    with pytest.raises(AppLoadError, match=message):
        loader.load("shop")

    file = Path(agents_dir.path, "shop", "app_settings.yaml")
    findings, _ = find_in_config(file, registers=False)
    assert any(message in finding.text for finding in findings)
    assert {finding.line for finding in findings} <= {1, 2, 3}


def test_the_check_knows_judges_without_a_model_and_runs_no_code_of_the_app(agents_dir: AgentsDir) -> None:
    write(agents_dir, SETTINGS + "    - {name: JudgeCheck, args: {name: tone, model: nosuchmodel, rubric: Rude.}}\n")
    agents_dir.write("shop/checks.py", "raise SystemExit('checking runs nothing')")
    findings, _ = find_in_config(Path(agents_dir.path, "shop", "app_settings.yaml"), registers=False)
    [finding] = findings
    assert "nosuchmodel" in finding.text


def test_an_edit_may_give_arguments_to_ready_made_checks_only(agents_dir: AgentsDir) -> None:
    loader = write(agents_dir, SETTINGS)
    loader.check_edit("shop", {})
    path = loader.folder("shop") / "app_settings.yaml"
    loader.check_edit("shop", {path: b"guardrails: {checks: [{name: PatternCheck, args: {name: email}}]}"})
    with pytest.raises(AgentConfigError, match="not trusted"):
        loader.check_edit("shop", {path: SETTINGS.encode()})
    with pytest.raises(AgentConfigError, match="not trusted"):
        moderation = b"guardrails: {checks: [{name: ModerationCheck, args: {base_url: https://evil.com}}]}"
        loader.check_edit("shop", {path: moderation})
