"""Scripted agents that work on a computer, and stop for an approval before the step that cannot be undone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.computer_use.computer import BaseComputer
from greenroom.tools.computer_use.playwright import PlaywrightComputer
from greenroom.tools.computer_use.toolset import ComputerUseToolset
from greenroom.tools.computer_use.xvfb import XvfbComputer
from tests.agents.talk import Talk, answer, call
from tests.requirements import browser_flags, browser_path, require_desktop
from tests.server.serving import serving
from tests.tools.computer_use.user import virtual

pytestmark = pytest.mark.slow

SIZE = (640, 480)
UNSAFE: JsonObject = {"decision": "require_confirmation", "explanation": "This can't be undone."}

FORM = """<!doctype html><title>order</title><style>
  * { position: absolute; left: 0; width: 200px; height: 40px; margin: 0; padding: 0 }
  [name=tea] { top: 0 } [name=guest] { top: 50px } button { top: 100px }
</style><form action="/order" method="post"><input name="tea"><input name="guest"><button>Order</button></form>"""


class Worker:
    """An agent whose model makes the calls one after the other."""

    def __init__(self, computer: BaseComputer, *calls: FunctionCall) -> None:
        model = ScriptedModel([*calls, "It is done."], model="gemini-3-pro")
        toolset = ComputerUseToolset(computer=computer, allow_private_network_access=True)
        self.talk = Talk(LlmAgent(name="agent", model=model, tools=[toolset]))

    async def works_until_the_unsafe_step(self) -> Event:
        """The event with the request for an approval, which ends the run."""
        events = await self.talk.say("Do it.")
        (asking,) = [event for event in events if "adk_request_confirmation" in _calls(event)]
        assert _texts(events) == []
        return asking

    async def continues(self, asking: Event, *, is_approved: bool) -> JsonObject:
        """The response of the unsafe step; the run goes on to its end."""
        (request,) = asking.get_function_calls()
        assert (request.args or {})["toolConfirmation"]["hint"] == UNSAFE["explanation"]
        events = await self.talk.say(answer(request.name or "", request.id, {"confirmed": is_approved}))
        assert _texts(events) == ["It is done."]
        responses = [response for event in events for response in event.get_function_responses()]
        return responses[0].response or {}


def _calls(event: Event) -> list[str | None]:
    return [call.name for call in event.get_function_calls()]


def _texts(events: list[Event]) -> list[str]:
    return [part.text for event in events for part in (event.content and event.content.parts) or [] if part.text]


class Shop:
    """Takes orders by a form."""

    def __init__(self) -> None:
        self.orders: list[dict[str, Any]] = []
        routes = [Route("/", self._form), Route("/order", self._order, methods=["POST"])]
        self.app = cast("Any", Starlette(routes=routes))

    async def _form(self, request: Request) -> Response:
        return HTMLResponse(FORM)

    async def _order(self, request: Request) -> Response:
        body = (await request.body()).decode()
        self.orders.append(dict(pair.split("=") for pair in body.split("&")))
        return HTMLResponse("<title>thanks</title>Thanks.")


@pytest.mark.parametrize("is_approved", [True, False])
async def test_an_agent_submits_a_form_in_a_browser_when_a_person_approves(is_approved: bool) -> None:
    shop = Shop()
    async with serving(shop.app) as server:
        computer = PlaywrightComputer(
            screen_size=SIZE, executable_path=browser_path(), browser_args=browser_flags(), settle_seconds=0.1
        )
        worker = Worker(
            computer,
            call("navigate", url=server.url),
            call("type_text_at", **virtual(SIZE, 20, 20), text="Assam", press_enter=False),
            call("type_text_at", **virtual(SIZE, 20, 70), text="Ada", press_enter=False),
            call("click", **virtual(SIZE, 20, 120), safety_decision=UNSAFE),
            call("take_screenshot"),
        )
        try:
            asking = await worker.works_until_the_unsafe_step()
            assert shop.orders == []
            response = await worker.continues(asking, is_approved=is_approved)
        finally:
            await worker.talk.runner.close()

    if is_approved:
        assert shop.orders == [{"tea": "Assam", "guest": "Ada"}]
        assert response["safety_acknowledgement"] == "true"
    else:
        assert shop.orders == []
        assert "a person rejected the call" in response["error"]


async def test_an_agent_edits_a_file_in_a_desktop_editor_and_saves_it_when_a_person_approves(tmp_path: Path) -> None:
    require_desktop()
    file = tmp_path / "guests.txt"
    file.write_text("Ada\n")
    computer = XvfbComputer(command=["mousepad", "--disable-server", str(file)], screen_size=SIZE, settle_seconds=0.1)
    worker = Worker(
        computer,
        call("wait", seconds=2),
        call("click", **virtual(SIZE, 300, 300)),
        call("hotkey", keys=["Control", "End"]),
        call("type", text="Zoë", press_enter=True),
        call("hotkey", keys=["Control", "s"], safety_decision=UNSAFE),
        call("wait", seconds=1),
    )
    try:
        asking = await worker.works_until_the_unsafe_step()
        assert file.read_text() == "Ada\n"
        response = await worker.continues(asking, is_approved=True)
        async with asyncio.timeout(10):
            while file.read_text() == "Ada\n":
                await asyncio.sleep(0.02)
    finally:
        await worker.talk.runner.close()

    assert response["safety_acknowledgement"] == "true"
    assert file.read_text() == "Ada\nZoë\n"
