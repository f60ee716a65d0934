"""Against a small server that speaks the REST API of Eventarc Publishing."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest
from google.oauth2.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]
from pydantic import BaseModel

from greenroom import (
    MISSING,
    OMIT,
    AgentProvided,
    CloudEventAttributesBinding,
    EventarcCredentialsConfig,
    EventarcToolset,
    ToolContext,
)
from greenroom.agents.llm_agent import LlmAgent
from greenroom.server.application import create_app
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.server.serving import serving
from tests.tools.google_api.server import GoogleServer, Json, refusal
from tests.tools.google_cloud.declarations import BY_ADK, declared_parameters
from tests.tools.one_call import call_once

BUS = "projects/p-1/locations/eu/messageBuses/b-1"
EVENT: Json = {"bus": BUS, "type": "order.created", "source": "//shop"}


def toolset(google: GoogleServer) -> EventarcToolset:
    google.answers[f"POST /v1/{BUS}:publish"] = {}
    config = EventarcCredentialsConfig(credentials=Credentials(token="t-1"))
    return EventarcToolset(credentials_config=config, base_url=google.url)


async def publish(google: GoogleServer, **args: Any) -> Json:
    return (await call_once(toolset(google), "publish_message", {**EVENT, **args})).response


def published(google: GoogleServer) -> Json:
    (body,) = [seen.body for seen in google.seen]
    event: Json = body["protoMessage"]
    event["attributes"] = {name: value["ceString"] for name, value in event["attributes"].items()}
    return event


async def test_the_tool_is_declared_as_in_adk() -> None:
    declared = await declared_parameters(EventarcToolset())
    by_adk = BY_ADK["EventarcToolset"]
    assert list(declared) == list(by_adk)
    # A parameter of any type: ADK writes null as one more.
    expected: Json = {**by_adk["publish_message"]["properties"], "data": {"default": None}}
    got: Json = declared["publish_message"]["properties"]
    assert {**got, "data": {"default": got["data"]["default"]}} == expected
    assert declared["publish_message"]["required"] == by_adk["publish_message"]["required"]


async def test_an_event_is_published(google: GoogleServer) -> None:
    args = {"data": {"n": 1}, "subject": "o-1", "id": "e-1", "time": "2024-01-01T00:00:00Z"}
    made = await publish(google, **args, custom_attributes={"region": "eu"})
    assert made == {"status": "SUCCESS", "message_id": "e-1"}
    assert google.last.headers["authorization"] == "Bearer t-1"
    assert published(google) == {
        "id": "e-1",
        "source": "//shop",
        "type": "order.created",
        "specVersion": "1.0",
        "attributes": {
            "region": "eu",
            "datacontenttype": "application/json",
            "time": "2024-01-01T00:00:00Z",
            "subject": "o-1",
        },
        "textData": '{"n":1}',
    }


async def test_an_event_has_an_id_and_a_time_by_default(google: GoogleServer) -> None:
    made = await publish(google)
    event = published(google)
    assert made["message_id"] == event["id"]
    assert re.fullmatch(r"[0-9a-f-]{36}", event["id"])
    assert datetime.fromisoformat(event["attributes"]["time"]).tzinfo is not None
    assert not event.keys() & {"textData", "binaryData"}


@pytest.mark.parametrize(
    ("args", "field", "media_type"),
    [
        ({"data": "x"}, {"textData": "x"}, "text/plain"),
        ({"data": 5}, {"textData": "5"}, "application/json"),
        ({"data": "<a/>", "datacontenttype": "application/xml"}, {"textData": "<a/>"}, "application/xml"),
        ({"data": "eA==", "is_base64_encoded": True}, {"binaryData": "eA=="}, "application/octet-stream"),
        ({"data": "x", "datacontenttype": ""}, {"textData": "x"}, None),
        ({"data": ""}, {}, None),
    ],
)
async def test_data_are_text_or_binary(google: GoogleServer, args: Json, field: Json, media_type: str | None) -> None:
    await publish(google, **args, time="")
    event = published(google)
    assert {name: event[name] for name in event if name.endswith("Data")} == field
    assert event["attributes"] == ({"datacontenttype": media_type} if media_type else {})


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"bus": "b-1"}, "messageBuses"),
        ({"bus": "projects/../locations/eu/messageBuses/b"}, "messageBuses"),
        ({"type": " "}, "type"),
        ({"source": ""}, "source"),
        ({"id": ""}, "id"),
        ({"time": "noon"}, "RFC 3339"),
        ({"custom_attributes": {"Region": "eu"}}, "'Region'"),
        ({"custom_attributes": {"a_b": "eu"}}, "'a_b'"),
        ({"data": "?", "is_base64_encoded": True}, "base64"),
        ({"data": 5, "is_base64_encoded": True}, "text"),
    ],
)
async def test_invalid_events_are_refused(google: GoogleServer, args: Json, words: str) -> None:
    refused = await publish(google, **args)
    assert refused["status"] == "ERROR"
    assert words in refused["error_details"]
    assert google.seen == []


async def test_the_trace_of_the_call_is_an_attribute_if_it_is_asked_for(google: GoogleServer) -> None:
    events = [
        call("publish_message", f"c-{asked}", **EVENT, include_tracing_extension=asked) for asked in (True, False)
    ]
    agent = LlmAgent(name="a", model=ScriptedModel([*events, "Done."]), tools=[toolset(google)])
    async with serving(create_app(agents=[agent])) as server:
        await server.new_session("a")
        await server.run("a")
        spans = (await server.client.get("/dev/apps/a/debug/trace/session/s-1")).json()
    span = next(span for span in spans if span["name"] == "execute_tool publish_message")
    traced, untraced = (seen.body["protoMessage"]["attributes"] for seen in google.seen)
    assert f"{span['trace_id']}-{span['span_id']}" in traced["traceparent"]["ceString"]
    assert "traceparent" not in untraced


async def test_a_refusal_is_a_result_for_the_model(google: GoogleServer) -> None:
    tools = toolset(google)
    google.answers[f"POST /v1/{BUS}:publish"] = refusal(403, "PERMISSION_DENIED", "Not allowed")
    refused = (await call_once(tools, "publish_message", EVENT)).response
    assert refused == {"status": "ERROR", "error_details": "403 PERMISSION_DENIED: Not allowed"}


class Order(BaseModel):
    number: int
    note: str | None = None


def subject_of(payload: Order) -> str:
    return f"order-{payload.number}"


def user_of(ctx: ToolContext) -> str:
    return ctx.user_id


async def test_a_tool_of_one_kind_of_events_binds_their_attributes(google: GoogleServer) -> None:
    tools = toolset(google)
    made = tools.create_publish_tool(
        name="publish_order",
        description="Publishes an order.",
        bus=BUS,
        ce_attributes_binding=CloudEventAttributesBinding(
            type="order.created",
            source=AgentProvided("The shop."),
            subject=subject_of,
            time=OMIT,
            id=lambda payload, context: f"{context.user_id}-{payload.number}",
            custom_attributes={
                "user": user_of,
                "class": AgentProvided("The kind of order.", default=OMIT),
                "channel": AgentProvided("Where it came from.", default="web"),
                "region": lambda: "eu",
                "never": OMIT,
            },
        ),
        payload_schema=Order,
    )
    declared = (await declared_parameters(tools))["publish_order"]
    assert made.name == "publish_order"
    assert declared["required"] == ["source", "event_data"]
    assert list(declared["properties"]) == ["source", "class_", "channel", "event_data"]
    assert declared["properties"]["channel"]["default"] == "web"

    args = {"source": "//shop", "event_data": {"number": 7}}
    result = (await call_once(tools, "publish_order", args)).response
    assert result == {"status": "SUCCESS", "message_id": "ada-7"}
    event = published(google)
    assert event["textData"] == '{"number":7}'
    assert event["source"] == "//shop"
    assert event["attributes"] == {
        "user": "ada",
        "channel": "web",
        "region": "eu",
        "subject": "order-7",
        "datacontenttype": "application/json",
    }


async def test_a_bus_that_a_function_leaves_out_is_an_error(google: GoogleServer) -> None:
    tools = toolset(google)
    binding = CloudEventAttributesBinding(type="t", source="s")
    tools.create_publish_tool(name="pub", description="x", bus=lambda: OMIT, ce_attributes_binding=binding)
    refused = (await call_once(tools, "pub", {})).response
    assert "'bus'" in refused["error_details"]
    assert google.seen == []


@pytest.mark.parametrize(
    ("bus", "attributes", "error"),
    [
        (MISSING, {}, TypeError),
        (None, {}, TypeError),
        (BUS, {"type": OMIT}, TypeError),
        (BUS, {"source": None}, TypeError),
        (BUS, {"id": OMIT}, TypeError),
        (BUS, {"custom_attributes": {"type": "x"}}, ValueError),
        (BUS, {"custom_attributes": {"Upper": "x"}}, ValueError),
        (BUS, {"custom_attributes": {"x": MISSING}}, TypeError),
    ],
)
def test_invalid_bindings_are_refused(bus: Any, attributes: Json, error: type[Exception]) -> None:
    given: Json = {"type": "t", "source": "s", **attributes}
    binding = CloudEventAttributesBinding(**given)
    with pytest.raises(error):
        EventarcToolset().create_publish_tool(name="pub", description="x", bus=bus, ce_attributes_binding=binding)
