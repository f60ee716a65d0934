"""Against a small server that speaks Pub/Sub's REST API."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from google.oauth2.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]

from greenroom import PubSubCredentialsConfig, PubSubToolConfig, PubSubToolset
from tests.tools.google_api.server import GoogleServer, Json, refusal
from tests.tools.google_cloud.declarations import BY_ADK, declared_parameters
from tests.tools.one_call import call_once

TOPIC = "projects/p-1/topics/orders"
SUBSCRIPTION = "projects/p-1/subscriptions/desk"


async def ask(google: GoogleServer, name: str, args: Json, **settings: Any) -> Json:
    toolset = PubSubToolset(
        credentials_config=PubSubCredentialsConfig(credentials=Credentials(token="t-1")),
        pubsub_tool_config=PubSubToolConfig(**settings),
        base_url=google.url,
    )
    return (await call_once(toolset, name, args)).response


async def test_the_tools_are_declared_as_in_adk() -> None:
    assert await declared_parameters(PubSubToolset()) == BY_ADK["PubSubToolset"]


async def test_a_message_is_published(google: GoogleServer) -> None:
    google.answers[f"POST /v1/{TOPIC}:publish"] = {"messageIds": ["m-1"]}
    args = {"topic_name": TOPIC, "message": "Grüße", "attributes": {"kind": "order"}, "ordering_key": "k"}
    assert await ask(google, "publish_message", args) == {"message_id": "m-1"}
    data = base64.b64encode("Grüße".encode()).decode()
    assert google.last.body == {"messages": [{"data": data, "attributes": {"kind": "order"}, "orderingKey": "k"}]}
    assert google.last.headers["authorization"] == "Bearer t-1"


async def test_a_topic_without_a_project_is_one_of_the_settings_project(google: GoogleServer) -> None:
    google.answers[f"POST /v1/{TOPIC}:publish"] = {"messageIds": ["m-1"]}
    made = await ask(google, "publish_message", {"topic_name": "orders", "message": "x"}, project_id="p-1")
    assert made == {"message_id": "m-1"}


async def test_messages_are_pulled_as_text_and_acknowledged(google: GoogleServer) -> None:
    messages = [
        {
            "ackId": "a-1",
            "message": {
                "data": base64.b64encode(b"hello").decode(),
                "messageId": "m-1",
                "publishTime": "2024-01-01T00:00:00Z",
                "attributes": {"kind": "order"},
            },
        },
        {"ackId": "a-2", "message": {"data": base64.b64encode(b"\xff").decode(), "messageId": "m-2"}},
    ]
    google.answers[f"POST /v1/{SUBSCRIPTION}:pull"] = {"receivedMessages": messages}
    google.answers[f"POST /v1/{SUBSCRIPTION}:acknowledge"] = {}
    args = {"subscription_name": SUBSCRIPTION, "max_messages": 2}

    pulled = (await ask(google, "pull_messages", args))["messages"]
    assert pulled[0] == {
        "message_id": "m-1",
        "data": "hello",
        "attributes": {"kind": "order"},
        "ordering_key": "",
        "publish_time": "2024-01-01T00:00:00Z",
        "ack_id": "a-1",
    }
    assert pulled[1]["data"] == "/w=="
    assert google.last.body == {"maxMessages": 2}

    await ask(google, "pull_messages", {**args, "auto_ack": True})
    assert google.last.body == {"ackIds": ["a-1", "a-2"]}
    acknowledged = {"subscription_name": SUBSCRIPTION, "ack_ids": ["a-1"]}
    assert await ask(google, "acknowledge_messages", acknowledged) == {"status": "SUCCESS"}
    assert google.last.body == {"ackIds": ["a-1"]}


@pytest.mark.parametrize("name", ["orders", SUBSCRIPTION, "projects/../topics/x", "projects/p/topics/a/b", ""])
async def test_other_names_are_refused(google: GoogleServer, name: str) -> None:
    refused = await ask(google, "publish_message", {"topic_name": name, "message": "x"})
    assert "projects/…/topics/…" in refused["error_details"]
    assert google.seen == []


async def test_a_refusal_is_a_result_for_the_model(google: GoogleServer) -> None:
    google.answers[f"POST /v1/{TOPIC}:publish"] = refusal(403, "PERMISSION_DENIED", "User not authorized")
    refused = await ask(google, "publish_message", {"topic_name": TOPIC, "message": "x"})
    assert refused == {"status": "ERROR", "error_details": "403 PERMISSION_DENIED: User not authorized"}
