"""Reading pages of the web, from a local server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from greenroom.agents.llm_agent import LlmAgent
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.load_web_page import LoadWebPageTool, load_web_page
from tests.agents.talk import Talk, call
from tests.server.quick_server import serving_routes

PAGE = (
    "<html><head><style>p { color: red }</style></head><body><nav><li>Home</li><li>Log in now</li></nav>"
    "<h1>How to boil an egg</h1><h2>Boil it four minutes</h2><h2>Serve with salt</h2><p>Put the <b>egg</b> into water &amp; wait.</p>"
    "<script>let a = 1 + 2 + 3</script></body>"
)


async def answer(request: Request) -> Response:
    match request.url.path:
        case "/page":
            return Response(PAGE, media_type="text/html")
        case "/text":
            return Response("short line\na line that is long enough\n", media_type="text/plain")
        case "/moved":
            return RedirectResponse("/page")
        case "/image":
            return Response(b"\x89PNG", media_type="image/png")
        case _:
            return Response("a page that is not there", 404)


@pytest.fixture
async def site() -> AsyncIterator[str]:
    async with serving_routes(Route("/{path:path}", answer)) as address:
        yield address


async def read(tool: LoadWebPageTool, url: str) -> dict[str, Any] | None:
    model = ScriptedModel([call("load_web_page", url=url), "ok"])
    events = await Talk(LlmAgent(name="a", model=model, tools=[tool])).say("read it")
    (declaration,) = model.requests[0].function_declarations()
    assert declaration.json_schema()["required"] == ["url"]
    return events[1].get_function_responses()[0].response


@pytest.mark.parametrize("path", ["/page", "/moved"])
async def test_lines_of_more_than_three_words_are_kept_without_markup(site: str, path: str) -> None:
    tool = LoadWebPageTool(allow_private_network_access=True)
    assert await read(tool, site + path) == {
        "result": "How to boil an egg\nBoil it four minutes\nPut the egg into water & wait."
    }


async def test_plain_text_is_taken_by_its_lines(site: str) -> None:
    tool = LoadWebPageTool(allow_private_network_access=True)
    assert await read(tool, f"{site}/text") == {"result": "a line that is long enough"}


@pytest.mark.parametrize(("path", "reason"), [("/gone", "404"), ("/image", "image/png")])
async def test_what_is_no_page_is_reported_to_the_model(site: str, path: str, reason: str) -> None:
    response = await read(LoadWebPageTool(allow_private_network_access=True), site + path)
    assert response is not None
    assert reason in response["error"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "printer.local", "metadata.google.internal"]
)
async def test_the_servers_own_network_is_refused(site: str, host: str) -> None:
    response = await read(load_web_page, f"{site}/page".replace("127.0.0.1", host))
    assert response is not None
    assert "not a public address" in response["error"]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "page", "http://[broken"])
async def test_other_addresses_are_refused(url: str) -> None:
    response = await read(load_web_page, url)
    assert response is not None
    assert "can't be read" in response["error"]
