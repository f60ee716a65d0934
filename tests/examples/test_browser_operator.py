"""The browser operator in a real Chromium, at a shop on this machine; a person approves the order."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from greenroom.records.base import JsonObject
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.examples.gallery import converse, responses, served
from tests.requirements import browser_flags, browser_path
from tests.server.serving import serving
from tests.tools.computer_use.user import virtual

pytestmark = pytest.mark.slow

SIZE = (1280, 800)
QUESTION = "Order a tin of Assam for Ada at the tea shop."
UNSAFE: JsonObject = {"decision": "require_confirmation", "explanation": "This places an order for 9 euros."}

PAGE = """<!doctype html><html lang="en"><title>Tea shop</title><style>
body {{ font: 28px sans-serif; margin: 0; background: #f4efe6 }}
h1 {{ margin: 0; padding: 24px 60px; background: #375a3a; color: white }}
form > * {{ position: absolute; left: 60px; width: 600px; height: 64px; font: inherit; box-sizing: border-box }}
[name=tea] {{ top: 160px }} [name=guest] {{ top: 260px }} button {{ top: 360px; background: #375a3a; color: white }}
p {{ padding: 24px 60px }}
</style><h1>Tea shop</h1>{content}</html>"""
FORM = """<form action="/order"><input name="tea" placeholder="Which tea?"><input name="guest" placeholder="Your name?">
<button>Order, 9 €</button></form>"""


@asynccontextmanager
async def tea_shop() -> AsyncGenerator[tuple[str, list[dict[str, str]]]]:
    """Its address, and the orders that it gets."""
    orders: list[dict[str, str]] = []

    async def form(request: Request) -> Response:
        return HTMLResponse(PAGE.format(content=FORM))

    async def order(request: Request) -> Response:
        orders.append(dict(request.query_params))
        return HTMLResponse(PAGE.format(content="<p>Thank you. Your tea is on its way.</p>"))

    app = Starlette(routes=[Route("/", form), Route("/order", order)])
    async with serving(cast("Any", app)) as server:
        yield server.url, orders


def ordering_model(url: str) -> ScriptedModel:
    return ScriptedModel(
        [
            call("navigate", url=url),
            call("type_text_at", **virtual(SIZE, 300, 190), text="Assam", press_enter=False),
            call("type_text_at", **virtual(SIZE, 300, 290), text="Ada", press_enter=False),
            call("click_at", **virtual(SIZE, 300, 390), safety_decision=UNSAFE),
            "The order is placed: a tin of Assam for Ada, 9 euros.",
        ],
        model="gemini-2.5-computer-use-preview-10-2025",
    )


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names the browser of this machine in the environment; root's needs flags."""
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\nexec {shlex.join([browser_path(), *browser_flags()])} "$@"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(browser))
    monkeypatch.setenv("BROWSER_HOSTS", "127.0.0.1")


async def test_an_order_is_placed_when_a_person_approves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    async with (
        tea_shop() as (url, orders),
        served("browser_operator", ordering_model(url), tmp_path) as server,
    ):
        await converse(server, "browser_operator", QUESTION)
        assert orders == []
        events = await converse(server, "browser_operator", {"approve": True})

    assert orders == [{"tea": "Assam", "guest": "Ada"}]
    assert responses(events)[-1]["url"].startswith(f"{url}/order")


async def test_other_sites_are_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    monkeypatch.setenv("BROWSER_HOSTS", "example.com")
    async with tea_shop() as (url, _):
        model = ScriptedModel([call("navigate", url=url), "I can't go there."], model="gemini-3-pro")
        async with served("browser_operator", model, tmp_path) as server:
            events = await converse(server, "browser_operator", "Go to the tea shop.")
    (refused,) = responses(events)
    assert "error" in refused
