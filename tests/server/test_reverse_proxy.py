"""The server below a path of nginx, of Caddy and of Traefik: what a client is given leads back through the proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest
from mcp import Client as McpClient
from openai import AsyncOpenAI

from greenroom import LlmAgent
from greenroom.client.async_client import AsyncClient
from greenroom.records.content import Content
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings, TokenSettings
from greenroom.testing import Says, ScriptedLiveModel
from tests.reverse_proxy import PREFIX, PROXIES, ProxyName, reverse_proxy
from tests.server.agents import HeldModel, echo
from tests.server.conftest import Serve
from tests.server.live_client import talking
from tests.server.serving import Serving, run_body

SESSION = "/apps/echo/users/ann/sessions/s-1"
MESSAGE = {"newMessage": {"parts": [{"text": "hi"}]}}


@dataclass(frozen=True)
class Proxied:
    """A server below a path. url: with the path; origin: without it. server: the one behind the proxy."""

    name: ProxyName
    url: str
    server: Serving
    held: HeldModel

    @property
    def origin(self) -> str:
        return self.url.removesuffix(PREFIX)


@pytest.fixture(params=PROXIES)
async def proxied(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> AsyncIterator[Proxied]:
    held = HeldModel()
    live = ScriptedLiveModel(lambda heard: Says(f"You said {heard.text()}" if isinstance(heard, Content) else "…"))
    agents = (echo(), LlmAgent(name="held", model=held), LlmAgent(name="desk", model=live))
    # As `greenroom serve` on a loopback address.
    server = await serve(*agents, gates=["a2a", "mcp", "openai"], allowed_hosts=["localhost"])
    async with reverse_proxy(request.param, server.port, tmp_path) as url:
        yield Proxied(request.param, url, server, held)


@pytest.fixture
async def client(proxied: Proxied) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=proxied.url, timeout=30) as client:
        yield client


async def test_redirects_lead_to_paths_below_the_prefix(proxied: Proxied, client: httpx.AsyncClient) -> None:
    for path, location in {
        "/": f"{PREFIX}/dev-ui/",
        "/dev-ui": f"{PREFIX}/dev-ui/",
        "/sign-in": f"{PREFIX}/dev-ui/sign-in",
        "/list-apps/?detailed=true": f"{PREFIX}/list-apps?detailed=true",
    }.items():
        reply = await client.get(path)
        assert (reply.status_code, reply.headers["location"]) == (307, location)
    page = await client.get(f"{proxied.origin}{PREFIX}", follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, f"{PREFIX}/dev-ui/")
    assert 'src="/dev-ui/' not in page.text
    for name in _files_of(page.text):
        assert (await client.get(proxied.origin + name)).status_code == 200, name


def _files_of(page: str) -> list[str]:
    return [part.partition('"')[0] for part in page.split('="')[1:] if part.startswith("/")]


async def test_locations_of_runs_and_slashes_in_ids(proxied: Proxied, client: httpx.AsyncClient) -> None:
    assert (await client.post(SESSION, json={})).status_code == 200
    started = await client.post(f"{SESSION}/runs", json=MESSAGE)
    location = started.headers["location"]
    assert location == f"{PREFIX}/runs/{started.json()['id']}"
    assert (await client.get(proxied.origin + location)).json()["id"] == started.json()["id"]

    if proxied.name == "nginx that removes the prefix":
        return  # it decodes the slash
    with_slash = "/apps/echo/users/ann/sessions/a%2Fb"
    assert (await client.post(with_slash, json={})).json()["id"] == "a/b"
    assert (await client.get(with_slash)).json()["id"] == "a/b"


async def test_a_stream_comes_through_as_it_is_written_and_resumes(proxied: Proxied, client: httpx.AsyncClient) -> None:
    await proxied.server.new_session("held")
    body = run_body("held", streaming=True)
    async with client.stream("POST", "/run_sse", json=body) as reply:
        assert reply.status_code == 200
        lines = reply.aiter_lines()
        async with asyncio.timeout(10):
            proxied.held.let_go(1)
            assert '"one "' in await _next_data(lines)  # before the second word is there
            proxied.held.let_go(1)
            assert '"two "' in await _next_data(lines)
        run_id = reply.headers["x-run-id"]
    proxied.held.let_go()
    path = f"/runs/{run_id}/events"
    async with client.stream("GET", path, headers={"accept": "text/event-stream", "last-event-id": "1"}) as reply:
        async with asyncio.timeout(10):
            text = (await reply.aread()).decode()
    assert "one two three four" in text
    assert "event: end" in text


async def _next_data(lines: AsyncIterator[str]) -> str:
    async for line in lines:
        if line.startswith("data: "):
            return line
    raise AssertionError("the stream has ended")


async def test_a_live_conversation_comes_through(proxied: Proxied, client: httpx.AsyncClient) -> None:
    assert (await client.post("/apps/desk/users/ann/sessions/s-1", json={})).status_code == 200
    port = urlsplit(proxied.url).port
    assert port is not None
    for origin in (None, proxied.origin):
        async with talking(port, f"{PREFIX}/run_live", modalities="TEXT", origin=origin) as live:
            await live.say("hello")
            assert "You said hello" in str(await live.turn())  # the transcription


async def test_pages_of_the_public_host_are_the_servers_own(proxied: Proxied, client: httpx.AsyncClient) -> None:
    own = await client.get("/list-apps", headers={"origin": proxied.origin})
    assert own.status_code == 200
    other = await client.get("/list-apps", headers={"origin": "http://evil.example"})
    assert other.status_code == 403
    # what a client says of itself is replaced by the proxy
    forged = {"origin": "http://evil.example", "x-forwarded-host": "evil.example", "forwarded": "host=evil.example"}
    assert (await client.get("/list-apps", headers=forged)).status_code == 403


async def test_cards_lead_clients_of_a2a_through_the_proxy(proxied: Proxied) -> None:
    async with httpx.AsyncClient(timeout=30) as http:
        card = await A2ACardResolver(http, f"{proxied.url}/a2a/echo").get_agent_card()
        assert {one.url for one in card.supported_interfaces} == {f"{proxied.url}/a2a/echo"}
        client = ClientFactory(ClientConfig(httpx_client=http)).create(card)
        message = Message(message_id="m-1", role=Role.ROLE_USER, parts=[Part(text="hello")])
        replies = [str(reply) async for reply in client.send_message(SendMessageRequest(message=message))]
        assert "You said hello" in "".join(replies)


async def test_clients_of_other_protocols(proxied: Proxied) -> None:
    async with McpClient(f"{proxied.url}/mcp/echo") as mcp:
        result: Any = await mcp.call_tool("echo", {"message": "hello"})
        assert "You said hello" in str(result.content)
    async with AsyncOpenAI(base_url=f"{proxied.url}/v1", api_key="none") as openai:
        chat = await openai.chat.completions.create(model="echo", messages=[{"role": "user", "content": "hello"}])
        assert chat.choices[0].message.content == "You said hello"


async def test_the_python_client(proxied: Proxied) -> None:
    async with AsyncClient(proxied.url) as client:
        assert await client.list_apps() == ["desk", "echo", "held"]
        session = await client.create_session(app_name="echo", user_id="ann")
        run = await client.run(app_name="echo", user_id="ann", session_id=session.id, message="hello")
        events = [event async for event in run]
        assert events[-1].content is not None
        assert events[-1].content.text() == "You said hello"


async def test_the_reference_calls_the_paths_below_the_prefix(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["servers"] == [{"url": PREFIX}]
    assert "/list-apps" in document["paths"]
    assert f'src="{PREFIX}/dev-ui/assets/' in (await client.get("/docs")).text


@pytest.mark.parametrize("name", ["nginx", "caddy that removes the prefix"])
async def test_a_key_in_a_cookie_is_for_this_path(serve: Serve, name: ProxyName, tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.db")
    key = keys.create(name="test", subject="ann", scopes=["run", "read"])[1]
    tokens = TokenSettings(jwks_url="https://id.example/keys", issuer="https://id.example", audiences=("greenroom",))
    auth = AuthSettings(keys=str(keys.path), tokens=tokens)
    server = await serve(echo(), auth=auth, gates=["mcp"])
    async with (
        reverse_proxy(name, server.port, tmp_path) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as client,
    ):
        # that of another server at the root of the host must not be taken for it
        client.cookies.set("greenroom_key", "another", domain="127.0.0.1", path="/")
        assert (await client.get("/list-apps")).status_code == 401
        signed_in = await client.post("/sign-in", json={"key": key})
        assert f"Path={PREFIX};" in signed_in.headers["set-cookie"]
        assert (await client.get("/list-apps")).status_code == 200

        refused = await client.post("/mcp/echo", json={}, headers={"cookie": ""})
        metadata_url = refused.headers["www-authenticate"].partition('resource_metadata="')[2].rstrip('"')
        assert metadata_url == f"{url}/.well-known/oauth-protected-resource/mcp/echo"
        assert (await client.get(metadata_url)).json()["resource"] == f"{url}/mcp/echo"


@pytest.mark.parametrize("name", ["nginx", "nginx that removes the prefix"])
async def test_a_proxy_that_is_not_trusted_names_nothing(serve: Serve, name: ProxyName, tmp_path: Path) -> None:
    server = await serve(echo(), gates=["a2a"], trusted_proxies=["192.0.2.1"], url_prefix=PREFIX)
    async with (
        reverse_proxy(name, server.port, tmp_path) as url,
        httpx.AsyncClient(base_url=url, timeout=30) as client,
    ):
        card = (await client.get("/a2a/echo/.well-known/agent-card.json")).json()
        assert card["supportedInterfaces"][0]["url"] == f"{server.url}{PREFIX}/a2a/echo"
        assert (await client.get("/")).headers["location"] == f"{PREFIX}/dev-ui/"
