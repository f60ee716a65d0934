"""Functions of a computer as Gemini calls them: names, coordinates, results, approvals and refused addresses."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from greenroom import types
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.describe import describe
from greenroom.errors import AgentConfigError, ToolError
from greenroom.models.gemini.llm import Gemini
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.computer_use.computer import BaseComputer, ComputerEnvironment, ComputerState
from greenroom.tools.computer_use.toolset import ComputerUseToolset
from tests.agents.talk import Talk, answer
from tests.models.wire.gemini import GeminiServer

IMAGE = {"mimetype": "image/png", "data": base64.b64encode(b"screen").decode()}


class Computer(BaseComputer):
    """A computer of 200 x 100 pixels that records its actions."""

    def __init__(self) -> None:
        self.actions: list[Any] = []

    async def initialize(self) -> None:
        self.actions.append("initialize")

    async def close(self) -> None:
        self.actions.append("close")

    async def screen_size(self) -> tuple[int, int]:
        return 200, 100

    async def environment(self) -> ComputerEnvironment:
        return ComputerEnvironment.ENVIRONMENT_BROWSER

    async def current_state(self) -> ComputerState:
        return ComputerState(screenshot=b"screen", url="https://shop.example/")

    async def _did(self, *action: Any) -> ComputerState:
        self.actions.append(action)
        await asyncio.sleep(0)
        self.actions.append("done")
        return await self.current_state()

    async def open_web_browser(self) -> ComputerState:
        return await self._did("open")

    async def click_at(self, x: int, y: int) -> ComputerState:
        return await self._did("click", x, y)

    async def hover_at(self, x: int, y: int) -> ComputerState:
        return await self._did("hover", x, y)

    async def type_text_at(
        self, x: int, y: int, text: str, press_enter: bool = True, clear_before_typing: bool = True
    ) -> ComputerState:
        return await self._did("type", x, y, text, press_enter, clear_before_typing)

    async def scroll_document(self, direction: Any) -> ComputerState:
        return await self._did("scroll", direction)

    async def scroll_at(self, x: int, y: int, direction: Any, magnitude: int) -> ComputerState:
        return await self._did("scroll", x, y, direction, magnitude)

    async def wait(self, seconds: int) -> ComputerState:
        return await self._did("wait", seconds)

    async def go_back(self) -> ComputerState:
        return await self._did("back")

    async def go_forward(self) -> ComputerState:
        raise ToolError("there is no later page")

    async def search(self) -> ComputerState:
        return await self._did("search")

    async def navigate(self, url: str) -> ComputerState:
        return await self._did("navigate", url)

    async def key_combination(self, keys: list[str]) -> ComputerState:
        return await self._did("keys", keys)

    async def drag_and_drop(self, x: int, y: int, destination_x: int, destination_y: int) -> ComputerState:
        return await self._did("drag", x, y, destination_x, destination_y)


class NewerComputer(Computer):
    async def type_text(self, text: str, press_enter: bool = False) -> ComputerState:
        return await self._did("type", text, press_enter)

    async def double_click(self, x: int, y: int) -> ComputerState:
        return await self._did("double click", x, y)


class Conversation:
    """One with an agent whose model makes the calls, each list of them in one reply."""

    def __init__(self, toolset: ComputerUseToolset, *replies: Any, model: str = "gemini-3-pro") -> None:
        self.model = ScriptedModel([*replies, "Done."], model=model)
        self.talk = Talk(LlmAgent(name="agent", model=self.model, instruction="Buy tea.", tools=[toolset]))

    async def responses(self, message: Any = "go") -> list[JsonObject]:
        events = await self.talk.say(message)
        return [response.response or {} for event in events for response in event.get_function_responses()]


async def call(computer: BaseComputer, name: str, args: JsonObject, **options: Any) -> JsonObject:
    toolset = ComputerUseToolset(computer=computer, **options)
    conversation = Conversation(toolset, FunctionCall(name=name, args=args))
    (response,) = await conversation.responses()
    await conversation.talk.runner.close()
    return response


def acted(computer: Computer) -> list[Any]:
    """The actions between its initialization and its end."""
    first, *actions, last = computer.actions
    assert (first, last) == ("initialize", "close")
    return [action for action in actions if action != "done"]


@pytest.mark.parametrize(
    ("name", "args", "action"),
    [
        ("open_web_browser", {}, ("open",)),
        ("click_at", {"x": 500, "y": 250}, ("click", 100, 25)),
        ("click", {"x": 1000, "y": -1}, ("click", 199, 0)),
        ("move", {"x": 0, "y": 1200}, ("hover", 0, 99)),
        ("type_text_at", {"x": 10, "y": 10, "text": "tea"}, ("type", 2, 1, "tea", True, True)),
        ("type", {"text": "tea", "press_enter": True}, ("type", "tea", True)),
        ("double_click", {"x": 500, "y": 500}, ("double click", 100, 50)),
        ("scroll_document", {"direction": "down"}, ("scroll", "down")),
        ("scroll_at", {"x": 500, "y": 500, "direction": "left", "magnitude": 70}, ("scroll", 100, 50, "left", 70)),
        ("scroll", {"x": 500, "y": 500}, ("scroll", 100, 50, "down", 300)),
        ("wait", {"seconds": 0.2}, ("wait", 1)),
        ("wait", {}, ("wait", 1)),
        ("wait", {"seconds": 1e9}, ("wait", 30)),
        ("wait_5_seconds", {}, ("wait", 5)),
        ("search", {}, ("search",)),
        ("navigate", {"url": "https://1.1.1.1/"}, ("navigate", "https://1.1.1.1/")),
        ("key_combination", {"keys": "control+c"}, ("keys", ["control", "c"])),
        ("press_key", {"key": "enter"}, ("keys", ["enter"])),
        ("hotkey", {"keys": ["control", "c"]}, ("keys", ["control", "c"])),
        ("drag_and_drop", {"x": 0, "y": 0, "destination_x": 500, "destination_y": 500}, ("drag", 0, 0, 100, 50)),
        ("drag_and_drop", {"start_x": 0, "start_y": 0, "end_x": 500, "end_y": 500}, ("drag", 0, 0, 100, 50)),
    ],
)
async def test_functions_of_all_gemini_models(name: str, args: JsonObject, action: tuple[Any, ...]) -> None:
    computer = NewerComputer()
    assert await call(computer, name, args) == {"image": IMAGE, "url": "https://shop.example/"}
    assert acted(computer) == [action]


async def test_the_screen_is_taken_without_an_action() -> None:
    computer = Computer()
    assert await call(computer, "take_screenshot", {}) == {"image": IMAGE, "url": "https://shop.example/"}
    assert acted(computer) == []


async def test_actions_of_one_reply_do_not_overlap() -> None:
    computer = Computer()
    clicks = [FunctionCall(name="click_at", args={"x": x, "y": 0}) for x in (0, 100, 200)]
    await Conversation(ComputerUseToolset(computer=computer), clicks).responses()
    assert computer.actions == ["initialize", *[one for x in (0, 20, 40) for one in (("click", x, 0), "done")]]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8000/", "http://localhost/", "http://169.254.169.254\\@example.com/", "http://[::1]/",
        "http://metadata.google.internal/", "file:///etc/passwd", "javascript:alert(1)", "http://", "http://[", "shop",
    ],
)  # fmt: skip
async def test_private_and_strange_addresses_are_refused(url: str) -> None:
    computer = Computer()
    response = await call(computer, "navigate", {"url": url})
    assert set(response) == {"error", "url"}
    assert response["url"] == "https://shop.example/"
    assert acted(computer) == []


async def test_private_addresses_are_allowed_on_request() -> None:
    computer = Computer()
    await call(computer, "navigate", {"url": "http://localhost:8000/"}, allow_private_network_access=True)
    assert acted(computer) == [("navigate", "http://localhost:8000/")]


async def test_failures_and_missing_arguments_are_results_with_the_url() -> None:
    failed = await call(Computer(), "go_forward", {})
    assert failed == {"error": "there is no later page", "url": "https://shop.example/"}
    missing = await call(Computer(), "click_at", {"x": 1})
    assert "y" in missing["error"]
    assert missing["url"] == "https://shop.example/"


class BlindComputer(Computer):
    """After a failure there is nothing to see."""

    async def current_state(self) -> ComputerState:
        raise ToolError("Unable to capture screenshot")


async def test_a_failure_after_which_nothing_can_be_seen_is_a_result() -> None:
    assert await call(BlindComputer(), "go_forward", {}) == {"error": "there is no later page"}


RISKY = {"x": 500, "y": 500, "safety_decision": {"decision": "require_confirmation", "explanation": "This buys tea."}}


@pytest.mark.parametrize("is_confirmed", [True, False])
async def test_a_risky_call_waits_for_an_approval(is_confirmed: bool) -> None:
    computer = Computer()
    conversation = Conversation(ComputerUseToolset(computer=computer), FunctionCall(name="click_at", args=RISKY))
    events = await conversation.talk.say("go")
    (request,) = [c for event in events for c in event.get_function_calls() if c.name == "adk_request_confirmation"]
    assert (request.args or {})["toolConfirmation"]["hint"] == "This buys tea."
    assert computer.actions == []
    (response,) = await conversation.responses(answer(request.name or "", request.id, {"confirmed": is_confirmed}))
    if is_confirmed:
        assert response == {"image": IMAGE, "url": "https://shop.example/", "safety_acknowledgement": "true"}
        assert ("click", 100, 50) in computer.actions
    else:
        assert set(response) == {"error", "url"}
        assert ("click", 100, 50) not in computer.actions


async def entry(toolset: ComputerUseToolset, model: str) -> JsonObject:
    conversation = Conversation(toolset, model=model)
    await conversation.responses()
    (request,) = conversation.model.requests
    assert "Buy tea." in str(request.config.system_instruction)
    (tool,) = request.config.tools or []
    options: JsonObject = wire.to_plain(tool)["computerUse"]
    assert options.pop("environment") == "ENVIRONMENT_BROWSER"
    return options


NEVER = ["double_click", "key_down", "key_up", "middle_click", "mouse_down", "mouse_up", "right_click", "triple_click"]


@pytest.mark.parametrize(
    ("computer", "excluded", "older", "newer"),
    [
        (Computer(), [], [], [*NEVER, "type"]),
        (NewerComputer(), [], [], NEVER[1:]),
        (NewerComputer(), ["click_at", "search"], ["click_at", "search"], [*NEVER[1:], "click", "search"]),
        (NewerComputer(), ["click"], ["click_at"], [*NEVER[1:], "click"]),
        (NewerComputer(), ["hotkey"], [], [*NEVER[1:], "hotkey"]),
        (NewerComputer(), ["hotkey", "press_key"], ["key_combination"], [*NEVER[1:], "hotkey", "press_key"]),
        (NewerComputer(), ["type_text"], ["type_text_at"], [*NEVER[1:], "type"]),
        (NewerComputer(), ["double_click"], ["double_click"], NEVER),
    ],
)
async def test_functions_that_gemini_is_not_offered(
    computer: Computer, excluded: list[str], older: list[str], newer: list[str]
) -> None:
    toolset = ComputerUseToolset(computer=computer, excluded_predefined_functions=excluded)
    names = {tool.name for tool in await toolset.get_tools()}
    assert not names & {*older, *newer}
    options = await entry(toolset, "gemini-2.5-computer-use-preview")
    assert options.get("excludedPredefinedFunctions", []) == sorted(older)
    assert (await entry(toolset, "gemini-3-pro"))["excludedPredefinedFunctions"] == sorted(newer)


async def test_other_models_are_refused() -> None:
    with pytest.raises(AgentConfigError, match="computer_use"):
        await Conversation(ComputerUseToolset(computer=Computer()), model="claude-x").responses()


async def test_the_sdk_sends_the_entry() -> None:
    async with GeminiServer().serving() as server:
        model = Gemini("gemini-3-pro", api_key=server.secret, base_url=server.url)
        agent = LlmAgent(name="agent", model=model, tools=[ComputerUseToolset(computer=NewerComputer())])
        await Talk(agent).say("go")
        await model.close()
    options = {"environment": "ENVIRONMENT_BROWSER", "excluded_predefined_functions": NEVER[1:]}  # as the SDK spells it
    assert server.seen[0]["tools"] == [{"computerUse": options}]


async def test_an_app_that_controls_a_computer_is_described_so() -> None:
    agent = LlmAgent(name="agent", tools=[ComputerUseToolset(computer=Computer())])
    assert (await describe(App(name="app", root_agent=agent), language="python")).is_computer_use
    assert types.ComputerUse is not None
