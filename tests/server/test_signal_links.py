"""Signed URLs that agents hand out: each sends one signal to its run, without an API key."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from greenroom import BaseAgent, Context, Event, FunctionTool, LlmAgent, ToolContext, Workflow, types, wait_for
from greenroom.agents.workflow.nodes import node
from greenroom.errors import ConfigurationError
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import FunctionCall, Part
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings, ServerSettings
from greenroom.server.signal_urls import SignalUrls
from greenroom.server.webhook_sender import WebhookSecrets
from greenroom.testing import ScriptedModel
from tests.server.conftest import Serve, Store
from tests.server.serving import Json, Serving, until

PUBLIC = "https://agents.example.com/rooms/"
HTML = {"accept": "text/html,*/*;q=0.8"}


@pytest.fixture(params=["memory", "sqlite", "replicas"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def approver(*calls: FunctionCall) -> LlmAgent:
    """Calls `mail`, which makes the URLs, and then waits for the answer."""

    def mail(tool_context: ToolContext, seconds: float = 3600.0) -> dict[str, str]:
        """Sends the URLs."""
        return {
            name: tool_context.signal_url("answer", value=value, expires_seconds=seconds)
            for name, value in (("yes", "approved"), ("no", "<rejected>"), ("any", None))
        }

    made = calls or (FunctionCall(name="mail", args={}), FunctionCall(name="wait_for", args={"signal": "answer"}))
    model = ScriptedModel([*([Part(function_call=call)] for call in made), "done"])
    return LlmAgent(name="desk", model=model, tools=[FunctionTool(mail), wait_for])


async def start(server: Serving) -> tuple[str, dict[str, str]]:
    """A run that waits for the answer: its path, and the tokens' paths by name."""
    session = await server.new_session("desk")
    reply = await server.client.post(f"{session}/runs", json={"newMessage": {"parts": [{"text": "go"}]}})
    run = f"/runs/{reply.json()['id']}"
    await reaches(server, run, "waiting")
    events = (await server.client.get(f"{run}/events")).json()["events"]
    [urls] = [
        part["functionResponse"]["response"]
        for event in events
        for part in event["content"]["parts"]
        if part.get("functionResponse", {}).get("name") == "mail"
    ]
    assert all(url.startswith(PUBLIC + "signals/") for url in urls.values())
    return run, {name: url.removeprefix(PUBLIC.rstrip("/")) for name, url in urls.items()}


async def reaches(server: Serving, run: str, status: str) -> None:
    await until(lambda: _has_status(server, run, status))


async def _has_status(server: Serving, run: str, status: str) -> bool:
    return (await server.client.get(run)).json()["status"] == status


async def answers(server: Serving, run: str) -> list[Json]:
    events = (await server.client.get(f"{run}/events")).json()["events"]
    parts = [part for event in events if event["author"] == "user" for part in event["content"]["parts"]]
    return [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]


async def test_a_person_confirms_once(serve: Serve) -> None:
    server = await serve(approver(), public_url=PUBLIC)
    run, links = await start(server)
    for _ in range(2):
        page = await server.client.get(links["no"], headers=HTML)
        assert page.status_code == 200
        assert "&lt;rejected&gt;" in page.text
        assert page.headers["cache-control"] == "no-store"
        assert re.search(r'<form method="post">', page.text)
    assert await _has_status(server, run, "waiting")

    form = {"content-type": "application/x-www-form-urlencoded", **HTML}
    sent = await server.client.post(links["no"], headers=form)
    assert (sent.status_code, "Thank you" in sent.text) == (200, True)
    await reaches(server, run, "succeeded")
    assert await answers(server, run) == [{"value": "<rejected>"}]
    for method in ("GET", "POST"):
        for link in links.values():
            again = await server.client.request(method, link, headers=HTML)
            assert again.status_code == 409
            assert "It was answered before." in again.text
            assert "<form" not in again.text


async def test_a_program_posts_a_value(serve: Serve) -> None:
    server = await serve(approver(), public_url=PUBLIC)
    run, links = await start(server)
    wrong = await server.client.post(links["any"], content=b"{", headers={"content-type": "application/json"})
    assert wrong.status_code == 422
    sent = await server.client.post(links["any"], json={"amount": 5})
    assert (sent.status_code, sent.json()) == (200, {"signal": "answer"})
    await reaches(server, run, "succeeded")
    assert await answers(server, run) == [{"value": {"amount": 5}}]
    assert (await server.client.post(links["any"], json=1)).json()["code"] == "SignalRepeated"


async def test_the_value_of_a_url_can_not_be_changed(serve: Serve) -> None:
    server = await serve(approver(), public_url=PUBLIC)
    run, links = await start(server)
    assert (await server.client.post(links["yes"], json="rejected")).status_code == 200
    await reaches(server, run, "succeeded")
    assert await answers(server, run) == [{"value": "approved"}]


async def test_a_url_works_for_everybody_who_has_it(serve: Serve, tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.db")
    key = keys.create(name="test", subject="ann", scopes=("run", "read"))[1]
    server = await serve(approver(), public_url=PUBLIC, auth=AuthSettings(keys=str(keys.path)))
    server.client.headers["authorization"] = f"Bearer {key}"
    run, links = await start(server)
    async with httpx.AsyncClient(base_url=server.client.base_url) as nobody:
        assert (await nobody.get(run)).status_code == 401
        assert (await nobody.get(links["yes"], headers=HTML)).status_code == 200
        assert (await nobody.post(links["yes"])).status_code == 200
    await reaches(server, run, "succeeded")


async def test_forged_and_expired_urls_are_refused(serve: Serve) -> None:
    calls = (FunctionCall(name="mail", args={"seconds": 1.0}), FunctionCall(name="wait_for", args={"signal": "answer"}))
    server = await serve(approver(*calls), public_url=PUBLIC)
    run, links = await start(server)
    data, _, signature = links["yes"].partition(".")
    other = links["no"].partition(".")[2]
    for forged in (f"{data}.{other}", f"{data}.", data, f"{data}x.{signature}", "/signals/x.y", "/signals/é"):
        for method in ("GET", "POST"):
            refused = await server.client.request(method, forged)
            assert refused.status_code == 404, forged
            assert refused.json()["detail"] == "This link is not valid"

    async def has_expired() -> bool:
        return (await server.client.get(links["yes"])).status_code == 410

    await until(has_expired)
    assert (await server.client.post(links["yes"])).json()["code"] == "LinkExpired"
    assert await _has_status(server, run, "waiting")


async def test_a_url_is_refused_when_the_run_waits_no_more(serve: Serve) -> None:
    server = await serve(approver(), public_url=PUBLIC)
    run, links = await start(server)
    await server.client.post(f"{run}/cancel")
    for method in ("GET", "POST"):
        refused = await server.client.request(method, links["yes"], headers=HTML)
        assert refused.status_code == 409
        assert "An answer is no longer needed." in refused.text


@pytest.mark.parametrize("missing", ["public_url", "webhook_secrets"])
async def test_a_tool_needs_a_public_url_and_a_secret(serve: Serve, missing: str) -> None:
    server = await serve(approver(), **{"public_url": PUBLIC, missing: None})
    session = await server.new_session("desk")
    reply = await server.client.post(f"{session}/runs", json={"newMessage": {"parts": [{"text": "go"}]}})
    run = f"/runs/{reply.json()['id']}"
    await reaches(server, run, "failed")
    error = (await server.client.get(run)).json()["error"]
    assert error["code"] == "NotOffered"
    assert missing in error["message"]


class Asker(BaseAgent):
    """Says the URL of each of its two waits."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        for _ in range(2):
            text = ctx.signal_url("answer")
            yield ctx.new_event(content=types.Content(role="model", parts=[types.Part(text=text)]))
            await ctx.wait_for("answer")


def asking_workflow() -> Workflow:
    async def ask(ctx: Context) -> AsyncGenerator[Any]:
        for number in range(2):
            if number == len(ctx.state.get("urls", [])):
                ctx.state["urls"] = [*ctx.state.get("urls", []), ctx.signal_url("answer")]
                yield Event(content=types.Content(role="model", parts=[types.Part(text=ctx.state["urls"][-1])]))
            await ctx.wait_for("answer")

    return Workflow(name="desk", edges=[("START", node(ask, rerun_on_resume=True, on_interrupt="retry"))])


@pytest.mark.parametrize("agent", [Asker(name="desk"), asking_workflow()], ids=["agent", "node"])
async def test_each_wait_in_code_has_its_own_url(serve: Serve, agent: BaseAgent) -> None:
    server = await serve(agent, public_url=PUBLIC)
    session = await server.new_session("desk")
    reply = await server.client.post(f"{session}/runs", json={"newMessage": {"parts": [{"text": "go"}]}})
    run = f"/runs/{reply.json()['id']}"
    for number in range(2):
        links = await links_said(server, run, number + 1)
        assert (await server.client.post(links[number])).status_code == 200
        assert (await server.client.post(links[number])).status_code == 409
    await reaches(server, run, "succeeded")


async def links_said(server: Serving, run: str, count: int) -> list[str]:
    """The paths of the URLs in a run's texts, when it waits and has said that many."""
    links: list[str] = []

    async def has_said() -> bool:
        events = (await server.client.get(f"{run}/events")).json()["events"]
        texts = [part.get("text", "") for event in events for part in event.get("content", {}).get("parts", ())]
        links[:] = [text.removeprefix(PUBLIC.rstrip("/")) for text in texts if PUBLIC in text]
        return len(links) == count and await _has_status(server, run, "waiting")

    await until(has_said)
    return links


def test_urls_outlive_the_rotation_of_secrets(tmp_path: Path) -> None:
    file = tmp_path / "secrets.toml"
    old, new = (f'"whsec_{letter * 32}"' for letter in "ab")
    file.write_text(f"desk = [{old}]\n")
    urls = SignalUrls(PUBLIC, WebhookSecrets(str(file)).signers)
    made = urls.make(app_name="desk", run_id="e-1", signal="s", value=None, place="p", expires_seconds=60)
    token = made.rpartition("/")[2]
    assert urls.read(token).expires_at > time.time()
    file.write_text(f"desk = [{new},  {old}]\n")
    assert urls.read(token).run_id == "e-1"


@pytest.mark.parametrize("url", ["agents.example.com", "ftp://x", "https://", "https://x?y", "https://x y"])
def test_a_public_url_is_checked(url: str) -> None:
    with pytest.raises(ConfigurationError, match="public_url"):
        ServerSettings(public_url=url)
