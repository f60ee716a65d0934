"""Settings of apps in YAML."""

from __future__ import annotations

import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.errors import AgentConfigError, AppLoadError
from greenroom.records.run import RunStatus
from tests.apps.conftest import AgentsDir

AGENT = "name: shop\nmodel: scripted\ninstruction: Help."


def write(agents_dir: AgentsDir, settings: str) -> DirectoryAppLoader:
    agents_dir.write("shop/root_agent.yaml", AGENT)
    agents_dir.write("shop/app_settings.yaml", settings)
    return DirectoryAppLoader(agents_dir.path)


def test_a_file_beside_the_root_agent_has_the_settings(agents_dir: AgentsDir) -> None:
    loader = write(
        agents_dir,
        """
        onVersionChange: pin
        priority: -2
        sessionTtlSeconds: 86400
        expiresWaitingRuns: true
        webhooks:
          - url: https://example.com/runs
          - {id: failures, url: https://example.com/failures, states: [failed]}
        judges:
          - metric: safety_v1
            share: 0.2
            max_cost_per_day: 2.5
            criterion: {judge_model_options: {judge_model: gpt-5-mini}}
        """,
    )
    app = loader.load("shop")
    assert (app.on_version_change, app.priority) == ("pin", -2)
    assert (app.session_ttl_seconds, app.expires_waiting_runs) == (86400.0, True)
    by_url, failures = app.webhooks
    assert (by_url.url, bool(by_url.id)) == ("https://example.com/runs", True)
    assert (failures.id, failures.states) == ("failures", [RunStatus.FAILED])
    [judge] = app.judges
    assert (judge.name, judge.share, judge.max_cost_per_day) == ("safety_v1", 0.2, 2.5)
    assert judge.criterion == {"judge_model_options": {"judge_model": "gpt-5-mini"}}


def test_an_app_without_the_file_has_the_defaults(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/root_agent.yaml", AGENT)
    app = DirectoryAppLoader(agents_dir.path).load("shop")
    assert (app.on_version_change, list(app.webhooks)) == ("continue", [])


async def test_it_has_rules_of_redaction(agents_dir: AgentsDir) -> None:
    rules = """
        redaction:
          fields: [ssn]
          patterns: [email, {name: employee, expression: 'E-\\d{6}'}]
          finders: [.finders.planets]
        """
    agents_dir.write(
        "shop/finders.py",
        """
        from greenroom import Finding

        def planets(text):
            at = text.find("Mars")
            return [] if at == -1 else [Finding(at, at + 4, "planet")]
        """,
    )
    redaction = write(agents_dir, rules).load("shop").redaction
    assert redaction is not None
    value = {"ssn": "1", "text": "E-123456 is ada@example.com of Mars"}
    expected = {"ssn": "[redacted: ssn]", "text": "[redacted: employee] is [redacted: email] of [redacted: planet]"}
    assert await redaction.redact_json(value) == expected


def test_a_change_of_the_file_reloads_the_app(agents_dir: AgentsDir) -> None:
    loader = write(agents_dir, "on_version_change: pin")
    before = loader.load("shop")
    loader.refresh()
    agents_dir.write("shop/app_settings.yaml", "on_version_change: refuse")
    while not loader.refresh():
        pass
    after = loader.load("shop")
    assert (before.on_version_change, after.on_version_change) == ("pin", "refuse")
    assert before.version != after.version


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("redaction: {patterns: [passport]}", r"app_settings.yaml:1: redaction.*no ready-made pattern 'passport'"),
        ("redaction: {keys: [a]}", r"app_settings.yaml:1: redaction.*no such key"),
        ("session_ttl_seconds: 0", r"app_settings.yaml:1: session_ttl_seconds: must be a number of seconds"),
        ("expires_waiting_runs: 1", r"app_settings.yaml:1: expires_waiting_runs: must be true or false"),
        ("redaction: {}", r"app_settings.yaml:1: redaction: Redaction needs fields"),
        ("on_version_change: refuze", r"app_settings.yaml:1: on_version_change: .*did you mean 'refuse'"),
        ("priority: 11", "priority: the priority must be a whole number from -10 to 10"),
        ("priority: true", "the priority must be a whole number"),
        ("on_version_changed: pin", "did you mean 'on_version_change'"),
        ("webhooks:\n  - {url: ftp://example.com}", r"app_settings.yaml:2: webhooks\[0\].url: .*http"),
        ("webhooks:\n  - {url: https://example.com, states: [done]}", r"app_settings.yaml:2: webhooks\[0\]"),
        ("webhooks:\n  - {states: [failed]}", "url"),
        ("webhooks:\n  - {url: https://example.com, secret: x}", "no such key of a webhook"),
        ("webhooks: 5", "must be a list"),
        ("judges:\n  - {metric: safety_v1}", r"app_settings.yaml:2: judges.* needs max_tokens_per_day"),
        ("judges:\n  - {metric: safety_v1, portion: 1}", "no such key of a judge"),
    ],
)
def test_a_mistake_is_reported_with_its_line(agents_dir: AgentsDir, settings: str, message: str) -> None:
    loader = write(agents_dir, settings)
    with pytest.raises(AppLoadError, match=message):
        loader.load("shop")


def test_an_edit_of_the_settings_is_checked(agents_dir: AgentsDir) -> None:
    loader = write(agents_dir, "on_version_change: pin")
    path = loader.folder("shop") / "app_settings.yaml"
    loader.check_edit("shop", {path: b"on_version_change: refuse"})
    with pytest.raises(AgentConfigError, match="no such policy"):
        loader.check_edit("shop", {path: b"on_version_change: never"})
