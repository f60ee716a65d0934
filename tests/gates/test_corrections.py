"""A text that ends as another one than was streamed is corrected as each protocol can."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import Client
from mcp.types import TextContent

from greenroom import LlmAgent
from greenroom.gates.steps import CallStep, CorrectionStep, MessageEnd, StepReader, TextStep
from greenroom.models.model import BaseLlm
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from tests.gates.test_ag_ui import client_of_ag_ui, run, types, user
from tests.gates.test_same_run import frames
from tests.server.conftest import Serve

__all__ = ["client_of_ag_ui"]


class Changing(BaseLlm):
    """Streams "Hello there", and ends with this text, or these parts. first: the parts of the first reply, whole."""

    def __init__(self, *parts: Part | str, first: list[Part] | None = None) -> None:
        super().__init__(model="changing")
        self._first = first
        self._parts = [Part(text=part) if isinstance(part, str) else part for part in parts]

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        if self._first is not None:
            first = self._first
            self._first = None
            yield LlmResponse(content=Content(role="model", parts=first))
            return
        for word in ("Hello ", "there") if stream else ():
            yield LlmResponse(content=Content(role="model", parts=[Part(text=word)]), partial=True)
        yield LlmResponse(content=Content(role="model", parts=self._parts))


def changing(*parts: Part | str) -> LlmAgent:
    return LlmAgent(name="echo", model=Changing(*parts))


# the steps


def event(*parts: Part | str, partial: bool = False) -> Event:
    made = [Part(text=part) if isinstance(part, str) else part for part in parts]
    return Event(id="e", author="a", partial=partial or None, content=Content(role="model", parts=made))


def shown(*parts: Part | str) -> list[Any]:
    """The steps that follow the pieces "Hel" and "lo"."""
    reader = StepReader()
    for piece in ("Hel", "lo"):
        assert reader.read(event(piece, partial=True)) == [TextStep("e", "a", piece, False)]
    return reader.read(event(*parts))


END = MessageEnd("e")
CALL = FunctionCall(id="c", name="f", args={})


@pytest.mark.parametrize(
    ("parts", "steps"),
    [
        (["Hello"], [END]),
        (["Hello!"], [TextStep("e", "a", "!", False), END]),
        (["Hel", "lo"], [END]),
        (["Hel", Part(function_call=CALL), "lo!"],
         [CallStep("e", "a", CALL, False, False), TextStep("e", "a", "!", False), END]),
        (["H", "ello", "!", "?"], [TextStep("e", "a", "!", False), TextStep("e", "a", "?", False), END]),
        (["Howdy"], [CorrectionStep("e", "a", "Howdy"), END]),
        (["Hell"], [CorrectionStep("e", "a", "Hell"), END]),
        (["How", Part(function_call=CALL), "dy"],
         [CorrectionStep("e", "a", "Howdy"), CallStep("e", "a", CALL, False, False), END]),
        ([Part(function_call=CALL)], [CorrectionStep("e", "a", ""), CallStep("e", "a", CALL, False, False), END]),
        ([], []),
    ],
)  # fmt: skip
def test_the_steps_of_a_message_after_its_pieces(parts: list[Part | str], steps: list[Any]) -> None:
    assert shown(*parts) == steps


def test_thoughts_are_not_sent_a_second_time() -> None:
    reader = StepReader()
    reader.read(event(Part(text="Hm", thought=True), partial=True))
    assert reader.read(event(Part(text="Well", thought=True), "Yes")) == [TextStep("e", "a", "Yes", False), END]


# the protocols


async def test_a_front_end_of_ag_ui_gets_a_snapshot(serve: Serve) -> None:
    server = await serve(changing("Howdy"), gates=("ag_ui",))
    asked = [
        user("Hi"),
        {"id": "r", "role": "reasoning", "content": "Hm"},
        {"id": "b", "role": "assistant", "content": "Well"},
    ]
    made = await run(server, *asked, {**user("x"), "name": "ann"})
    assert made["error"] is None
    assert [(one["role"], one["content"]) for one in made["messages"]] == [
        ("user", "Hi"), ("reasoning", "Hm"), ("assistant", "Well"), ("user", "x"), ("assistant", "Howdy"),
    ]  # fmt: skip
    assert made["messages"][3]["name"] == "ann"
    assert types(made).count("MESSAGES_SNAPSHOT") == 1
    again = await run(server, *made["messages"], user("y"))
    assert [one["content"] for one in again["messages"][5:]] == ["y", "Howdy"]


async def test_calls_and_results_stay_in_a_snapshot(serve: Serve) -> None:
    def look() -> str:
        return "blue"

    call = Part(function_call=FunctionCall(name="look", args={"a": 1}))
    agent = LlmAgent(name="echo", model=Changing("Howdy", first=[Part(text="Let me see"), call]), tools=[look])
    made = await run(await serve(agent, gates=("ag_ui",)), user("Look"))
    assert made["error"] is None
    _, called, result, text = made["messages"]
    assert (called["content"], called["toolCalls"][0]["function"]) == (
        "Let me see",
        {"name": "look", "arguments": '{"a":1}'},
    )
    assert (result["toolCallId"], result["content"]) == (called["toolCalls"][0]["id"], '{"result":"blue"}')
    assert text["content"] == "Howdy"


async def test_a_text_that_a_front_end_has_whole_needs_no_snapshot(serve: Serve) -> None:
    made = await run(await serve(changing("Hello", " there!"), gates=("ag_ui",)), user("x"))
    assert made["messages"][-1]["content"] == "Hello there!"
    assert "MESSAGES_SNAPSHOT" not in types(made)


async def test_a_response_ends_with_the_right_text(serve: Serve) -> None:
    server = await serve(changing("Howdy"), gates=("openai",))
    body = {"model": "echo", "input": "x", "stream": True}
    made = frames((await server.client.post("/v1/responses", json=body)).text)
    deltas = "".join(one["delta"] for one in made if one["type"] == "response.output_text.delta")
    [done] = [one for one in made if one["type"] == "response.output_text.done"]
    response = made[-1]["response"]
    assert (deltas, done["text"]) == ("Hello there", "Howdy")
    assert [item["content"][0]["text"] for item in response["output"]] == ["Howdy"]
    assert (await server.client.get(f"/v1/responses/{response['id']}")).json()["output"] == response["output"]


async def test_a_stream_of_chunks_does_not_repeat_the_text(serve: Serve) -> None:
    server = await serve(changing("Howdy"), gates=("openai",))
    body: dict[str, Any] = {"model": "echo", "messages": [{"role": "user", "content": "x"}]}
    streamed = await server.client.post("/v1/chat/completions", json={**body, "stream": True})
    chunks = [json.loads(line[6:]) for line in streamed.text.split("\n") if line.startswith("data: {")]
    assert "".join(one["choices"][0]["delta"].get("content", "") for one in chunks) == "Hello there"
    whole = (await server.client.post("/v1/chat/completions", json=body)).json()
    assert whole["choices"][0]["message"]["content"] == "Howdy"


async def test_a_result_of_mcp_has_the_right_text(serve: Serve) -> None:
    server = await serve(changing("Howdy"), gates=("mcp",))
    said: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        said.append(message)

    async with Client(f"{server.url}/mcp/echo") as client:
        result = await client.call_tool("echo", {"message": "x"}, progress_callback=note)
    [content] = result.content
    assert isinstance(content, TextContent)
    assert content.text == "Howdy"
    assert "Howdy" not in "".join(text or "" for text in said)
