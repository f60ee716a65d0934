"""The page about logins says what a server really answers."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from greenroom.records.content import FunctionCall
from greenroom.server.application import create_app
from greenroom.testing.scripted_model import ScriptedModel
from tests.credentials.authorization_server import AuthorizationServer
from tests.credentials.desk import requests_of
from tests.documentation.transcript import Transcript
from tests.server.serving import Json, serving

DOCS = Path(__file__).parents[2] / "docs"
REDIRECT = "https://desk.example/dev-ui/"


async def test_the_page_shows_what_the_server_answers(provider: AuthorizationServer) -> None:
    provider.client_id = "desk"
    provider.client_secret = "hush"
    provider.redirect = REDIRECT
    page = Transcript((DOCS / "logins.md").read_text().replace("https://login.example", provider.url))
    assert len(page.exchanges) == 5
    agent = runpy.run_path(str(DOCS / "snippets" / "login.py"))["desk"](provider.url, "hush")
    agent.model = ScriptedModel([FunctionCall(name="who_am_i", args={}), "You are Ada."])
    async with serving(create_app(agents=[agent])) as server:
        seen: list[Any] = []
        for exchange in page.exchanges:
            if "co-1" in exchange.line:
                page.real["co-1"] = await code_of(requests_of(seen[1])[0])
            seen.append(await page.check(server, exchange))
    assert provider.grants == ["authorization_code"]
    for secret in ("hush", page.real["co-1"], *provider.tokens, *provider.refreshable):
        assert secret not in json.dumps(seen)


async def code_of(request: Json) -> str:
    """Parameters with which the user's browser is sent back."""
    address = request["args"]["authConfig"]["exchangedAuthCredential"]["oauth2"]["authUri"]
    async with httpx.AsyncClient() as browser:
        page = await browser.get(httpx.URL(address).copy_merge_params({"redirect_uri": REDIRECT}))
    location = page.headers["location"]
    assert location.startswith(REDIRECT)
    return parse_qs(urlsplit(location).query)["code"][0]
