"""The spans of a live run: a connection has no calls of the model, but what it says has a beginning and an end."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import ModelError
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmResponse
from greenroom.testing import Drops, Hears, Listens, Says, ScriptedLiveModel
from tests.server.conftest import Serve
from tests.server.live_client import talking
from tests.server.serving import Json, Serving, until
from tests.server.test_traces import named, spans_of, tree

USAGE = GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=3)


async def ready(serve: Serve, *script: Any, tools: Any = ()) -> Serving:
    server = await serve(LlmAgent(name="desk", model=ScriptedLiveModel(script), tools=tools))
    await server.new_session("desk")
    return server


async def traced(server: Serving) -> list[Json]:
    """The spans, once the run has ended."""
    await until(lambda: spans_of(server, "desk"))
    return await spans_of(server, "desk")


def content(span: Json, name: str) -> Any:
    return json.loads(span["attributes"][f"gcp.vertex.agent.{name}"])


def event_id(span: Json) -> str:
    return span["attributes"]["gcp.vertex.agent.event_id"]


async def test_what_the_model_says_is_a_call_of_it_up_to_its_tools_and_to_the_end_of_its_turn(serve: Serve) -> None:
    def weather(city: str) -> str:
        """The weather."""
        return f"blue over {city}"

    server = await ready(
        serve,
        FunctionCall(name="weather", args={"city": "Oslo"}),
        "It is blue.",
        [LlmResponse(usage_metadata=USAGE), Hears("thanks"), Says("bye")],  # vendors count a turn after its end
        tools=[weather],
    )

    async with talking(server.port) as client:
        await client.say("weather?")
        await client.turn()
        await client.speak(b"xx")
        await client.send({"activity_end": {}})
        await client.turn()
        await client.send({"close": True})
        await client.closed()

    spans = await traced(server)
    assert tree(spans) == [
        ("invocation", None),
        ("invoke_agent desk", "invocation"),
        ("call_llm", "invoke_agent desk"),
        ("execute_tool weather", "invoke_agent desk"),
        ("call_llm", "invoke_agent desk"),
        ("call_llm", "invoke_agent desk"),
    ]
    calls = named(spans, "call_llm")
    assert all(first["end_time"] <= second["start_time"] for first, second in pairwise(calls))
    log = (await server.client.get("/apps/desk/users/ann/sessions/s-1")).json()["events"]
    event_ids = [e["id"] for e in log if e["author"] == "desk" and ("content" in e or "outputTranscription" in e)]
    assert [event_id(span) for span in calls] == [event_ids[0], event_ids[2], event_ids[3]]
    assert content(calls[0], "llm_request")["model"] == "scripted-live"
    assert content(calls[0], "llm_response")["content"]["parts"][0]["functionCall"]["name"] == "weather"
    assert content(calls[1], "llm_response")["content"]["parts"] == [{"text": "It is blue."}]
    assert content(calls[2], "llm_response")["outputTranscription"]["text"] == "bye"
    tokens = [span["attributes"].get("gen_ai.usage.input_tokens") for span in calls]
    assert tokens == [None, 7, None]
    assert not [span for span in spans if "error.type" in span["attributes"]]
    shown = await server.client.get(f"/debug/trace/{event_ids[3]}")
    assert shown.json()["gen_ai.operation.name"] == "generate_content"


async def test_a_connection_that_is_lost_fails_the_call_and_the_next_one_is_sent_the_history(serve: Serve) -> None:
    server = await ready(serve, "one", [Says("t w o"), Listens(1), Drops()], "three")
    async with talking(server.port, modalities="TEXT") as client:
        await client.say("first")
        await client.turn()
        await client.say("second")
        await client.until(lambda f: f.get("outputTranscription", {}).get("finished"))
        await client.say("third")
        await client.turn()
        await client.send({"close": True})
        await client.closed()
    spans = await traced(server)
    assert [span["attributes"].get("error.type") for span in named(spans, "call_llm")] == [None, "ModelError", None]
    (sent,) = named(spans, "send_data")
    assert [part["text"] for said in content(sent, "data") for part in said["parts"]][:2] == ["first", "one"]
    shown = await server.client.get(f"/dev/apps/desk/debug/trace/{event_id(sent)}")
    assert shown.json()["span_id"] == sent["span_id"]


async def test_a_model_that_can_not_be_asked_is_a_failed_call(serve: Serve) -> None:
    server = await ready(serve, ModelError("No such model", model="m", retryable=False))
    async with talking(server.port) as client:
        await client.say("hi")
        assert (await client.closed())[0] == 1011
    (call,) = named(await traced(server), "call_llm")
    assert call["attributes"]["error.type"] == "ModelError"
    assert content(call, "llm_request")["model"] == "scripted-live"


async def test_the_trace_continues_with_the_one_of_the_handshake(serve: Serve) -> None:
    server = await ready(serve, "ok")
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}
    async with talking(server.port, additional_headers=headers) as client:
        await client.say("hi")
        await client.turn()
        await client.send({"close": True})
        await client.closed()
    assert {span["trace_id"] for span in await traced(server)} == {trace_id}
