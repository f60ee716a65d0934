"""Every field that ADK's events have goes in by either of its names and comes out as ADK's clients want it."""

from __future__ import annotations

import copy
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.invocation.context import InvocationContext
from greenroom.records import content as parts
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.event import Event, EventActions
from tests.server.conftest import Serve, Store
from tests.server.serving import Json, Serving

SESSIONS = "/apps/echo/users/ann/sessions"

FREE: Json = {"snake_key": None, "camelKey": {"inline_data": 1}, "": [None], "timestamp": 1771000002400}
"""A map whose keys are the users' own."""

BYTES = "+/++Pj8="
BLOB: Json = {"mimeType": "image/png", "data": BYTES, "displayName": "a.png"}
FILE: Json = {"fileUri": "gs://b/a", "mimeType": "application/pdf", "displayName": "a"}
HEARD: Json = {
    "text": "hello",
    "finished": True,
    "languageCode": "no",
    "speakerLabel": "1",
    "words": [{"word": "hello", "startOffset": "0s"}],
    "startOffset": "0s",
    "endOffset": "1s",
}

PARTS: list[Json] = [
    {"text": "a\u2028b\u2029c\x85d"},
    {"text": "hm", "thought": True, "thoughtSignature": BYTES},
    {
        "inlineData": BLOB,
        "videoMetadata": {"startOffset": "1s", "endOffset": "2s", "fps": 1.5},
        "mediaResolution": {"level": "MEDIA_RESOLUTION_LOW", "numTokens": 5},
        "partMetadata": FREE,
        "mediaProcessing": "STATIC",
        "speechMetadata": {"speaker": "Joe", "style": "calm"},
    },
    {"fileData": FILE},
    {
        "functionCall": {
            "id": "c1",
            "name": "f",
            "args": FREE,
            "partialArgs": [
                {"jsonPath": "$.a", "stringValue": "x", "willContinue": True},
                {"jsonPath": "$.b", "numberValue": 1.5},
                {"jsonPath": "$.c", "boolValue": False},
                {"jsonPath": "$.d", "nullValue": "NULL_VALUE"},
            ],
            "willContinue": False,
        }
    },
    {
        "functionResponse": {
            "id": "c1",
            "name": "f",
            "response": FREE,
            "parts": [{"inlineData": BLOB}, {"fileData": FILE, "mediaProcessing": "AGENTIC"}],
            "scheduling": "WHEN_IDLE",
            "willContinue": False,
        }
    },
    {"executableCode": {"language": "PYTHON", "code": "1", "id": "x1"}},
    {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1", "id": "x1"}},
    {"toolCall": {"id": "t1", "toolType": "GOOGLE_SEARCH", "args": FREE}},
    {"toolResponse": {"id": "t1", "toolType": "GOOGLE_SEARCH", "response": FREE}},
    {"audioTranscription": HEARD},
]

ACTIONS: Json = {
    "stateDelta": {"snake_key": {"inner_key": None}, "user:tier": "gold"},
    "artifactDelta": {"a_file.txt": 3},
    "requestedAuthConfigs": {"c_1": {"authScheme": {"type": "http", "scheme": "bearer"}, "credentialKey": "k"}},
    "requestedToolConfirmations": {"c_1": {"hint": "Sure?", "confirmed": False, "payload": FREE}},
    "skipSummarization": True,
    "transferToAgent": "b",
    "transferReason": "because",
    "endInvocation": True,
    "escalate": True,
    "endOfAgent": True,
    "agentState": FREE,
    "compaction": {"startTimestamp": 1.5, "endTimestamp": 2.5, "compactedContent": {"role": "user", "parts": PARTS}},
    "rewindBeforeInvocationId": "e-0",
    "route": ["x", 1],
    "renderUiWidgets": [{"id": "w", "provider": "p", "payload": FREE}],
    "setModelResponse": FREE,
    "deletedArtifactIds": ["z"],
}

EVENT: Json = {
    "id": "ev-1",
    "invocationId": "e-1",
    "author": "front_desk",
    "timestamp": 1771000002.25,
    "actions": ACTIONS,
    "content": {"role": "model", "parts": PARTS},
    "partial": False,
    "turnComplete": True,
    "interrupted": True,
    "errorCode": "SAFETY",
    "errorMessage": "blocked",
    "finishReason": "A_REASON_OF_TOMORROW",
    "usageMetadata": {
        "promptTokenCount": 1,
        "candidatesTokenCount": 2,
        "totalTokenCount": 3,
        "thoughtsTokenCount": 4,
        "cachedContentTokenCount": 5,
        "toolUsePromptTokenCount": 6,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 1}],
        "candidatesTokensDetails": [{"modality": "AUDIO", "tokenCount": 2}],
        "cacheTokensDetails": [{"modality": "TEXT", "tokenCount": 5}],
        "toolUsePromptTokensDetails": [{"modality": "TEXT", "tokenCount": 6}],
        "trafficType": "ON_DEMAND",
    },
    "modelVersion": "m-1",
    "avgLogprobs": -0.5,
    "logprobsResult": {"chosenCandidates": []},
    "groundingMetadata": {"searchEntryPoint": {"renderedContent": "<b>x</b>"}},
    "citationMetadata": {"citations": []},
    "longRunningToolIds": ["c1"],
    "branch": "a.b",
    "customMetadata": FREE,
    "inputTranscription": HEARD,
    "outputTranscription": HEARD,
    "turnCompleteReason": "NEED_MORE_INPUT",
    "interactionStatus": "completed",
    "liveSessionResumptionUpdate": {"newHandle": "h", "resumable": True, "lastConsumedClientMessageIndex": 1},
    "liveSessionId": "l",
    "goAway": {"timeLeft": "10s"},
    "voiceActivity": {"voiceActivityType": "ACTIVITY_START", "audioOffset": "1s"},
    "nodeInfo": {"path": "root@1/child@1", "outputFor": ["x"], "messageAsOutput": True},
    "output": FREE,
    "isolationScope": "s",
    "cacheMetadata": {"fingerprint": "f", "contents_count": 1},
    "interactionId": "i",
    "environmentId": "v",
}


def snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def in_snake_case(value: Any) -> Any:
    """Without the maps whose names are the users'."""
    if isinstance(value, list):
        return [in_snake_case(item) for item in value]
    if not isinstance(value, dict) or value == FREE or "snake_key" in value:
        return value
    free = {"artifactDelta", "requestedAuthConfigs", "nodeInfo", "goAway", "voiceActivity", "liveSessionResumptionUpdate",
            "cacheMetadata", "logprobsResult", "groundingMetadata", "citationMetadata", "words"}  # fmt: skip
    return {snake(key): inner if key in free else in_snake_case(inner) for key, inner in value.items()}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def test_the_event_above_has_every_field() -> None:
    named = [(Event, EVENT), (EventActions, ACTIONS), (GenerateContentResponseUsageMetadata, EVENT["usageMetadata"])]
    named += [(parts.Transcription, HEARD), (parts.Blob, BLOB)]
    named += [
        (parts.PartMediaResolution if kind == "mediaResolution" else getattr(parts, kind[0].upper() + kind[1:]), part[kind])
        for part in PARTS
        for kind in part
        if kind in ("functionCall", "functionResponse", "toolCall", "toolResponse", "executableCode", "mediaResolution",
                    "codeExecutionResult", "videoMetadata", "fileData")
    ]  # fmt: skip
    for record, plain in named:
        assert {field.encode_name for field in msgspec.structs.fields(record)} == set(plain), record
    every = {field.encode_name for field in msgspec.structs.fields(parts.Part)}
    assert {name for part in PARTS for name in part} == every
    pieces = [piece for part in PARTS for piece in part.get("functionCall", {}).get("partialArgs", [])]
    assert {name for piece in pieces for name in piece} == {
        field.encode_name for field in msgspec.structs.fields(parts.PartialArg)
    }


@pytest.mark.parametrize("spelled", [copy.deepcopy, in_snake_case], ids=["camelCase", "snake_case"])
async def test_an_event_comes_back_as_it_went_in(server: Serving, spelled: Any) -> None:
    sent = spelled(EVENT)
    assert ("invocation_id" in sent) == (spelled is in_snake_case)
    made = await server.client.post(SESSIONS, json={"sessionId": "s-1", "events": [sent]})
    assert made.status_code == 200, made.text
    for reply in (made, await server.client.get(f"{SESSIONS}/s-1")):
        (event,) = reply.json()["events"]
        assert event == EVENT
        assert reply.text.isascii() or not any(mark in reply.text for mark in "\u2028\u2029\x85")
    assert made.json()["state"] == {"snake_key": {"inner_key": None}, "user:tier": "gold"}
    assert made.json()["lastUpdateTime"] == EVENT["timestamp"]


async def test_what_is_unknown_is_ignored_and_never_sent_on(server: Serving) -> None:
    """ADK's client for Python refuses a session, an action, a content or a part with a key that it doesn't know."""
    new: Json = {"newKind": {"a": 1}}
    call = {"functionCall": {"id": "c1", "name": "f", "args": {}, **new}, **new}
    actions: Json = {"stateDelta": {}, "deletedArtifactIds": [], **new}
    event: Json = {"author": "echo", "content": {"role": "model", "parts": [call], **new}, "actions": actions, **new}
    made = (await server.client.post(SESSIONS, json={"events": [event], **new})).json()
    assert set(made) == {"id", "appName", "userId", "state", "events", "lastUpdateTime"}
    (stored,) = made["events"]
    assert set(stored) == {"id", "invocationId", "author", "timestamp", "content", "actions"}
    assert stored["content"] == {"role": "model", "parts": [{"functionCall": {"id": "c1", "name": "f", "args": {}}}]}
    assert stored["actions"] == {
        "stateDelta": {}, "artifactDelta": {}, "requestedAuthConfigs": {}, "requestedToolConfirmations": {},
    }  # fmt: skip


@pytest.mark.parametrize("data", [BYTES, "-_--Pj8=", "-_--Pj8", "+/++Pj8"])
async def test_bytes_may_come_in_any_spelling_of_base64(server: Serving, data: str) -> None:
    """The standard one is sent: ADK for Java takes no other."""
    blob = {"mimeType": "image/png", "data": data}
    sent: list[Json] = [
        {"inlineData": blob},
        {"text": "x", "thoughtSignature": data},
        {"functionResponse": {"id": "c", "name": "f", "response": {}, "parts": [{"inlineData": blob}]}},
    ]
    event = {"author": "user", "content": {"role": "user", "parts": sent}}
    (stored,) = (await server.client.post(SESSIONS, json={"events": [event]})).json()["events"]
    assert stored["content"]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": BYTES}},
        {"text": "x", "thoughtSignature": BYTES},
        {"functionResponse": {"id": "c", "name": "f", "response": {}, "parts": [
            {"inlineData": {"mimeType": "image/png", "data": BYTES}}
        ]}},
    ]  # fmt: skip


async def test_times_in_milliseconds_become_seconds(server: Serving) -> None:
    """As ADK for Java sends them."""
    compaction = {"startTimestamp": 1771000001500, "endTimestamp": 1771000002500, "compactedContent": {"parts": []}}
    event = {"author": "user", "timestamp": 1771000003500, "actions": {"compaction": compaction}}
    (stored,) = (await server.client.post(SESSIONS, json={"events": [event]})).json()["events"]
    assert stored["timestamp"] == 1771000003.5
    compaction = stored["actions"]["compaction"]
    assert (compaction["startTimestamp"], compaction["endTimestamp"]) == (1771000001.5, 1771000002.5)


async def test_ids_have_their_prefixes_and_are_uuids_of_version_4(server: Serving) -> None:
    uuid4 = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    session = (await server.client.post(SESSIONS)).json()
    assert re.fullmatch(uuid4, session["id"])
    reply = await server.run("echo", sessionId=session["id"])
    patched = await server.client.patch(f"{SESSIONS}/{session['id']}", json={"stateDelta": {"a": 1}})
    events = patched.json()["events"]
    assert all(re.fullmatch(uuid4, event["id"]) for event in events)
    assert [event["invocationId"][:2] for event in events] == ["e-", "e-", "p-"]
    assert all(re.fullmatch(f"[ep]-{uuid4}", event["invocationId"]) for event in events)
    assert reply.headers["x-run-id"] == events[0]["invocationId"]
    assert patched.json()["lastUpdateTime"] == events[-1]["timestamp"]


AUTH_CONFIG: Json = {
    "authScheme": {
        "type": "oauth2",
        "flows": {"password": {"tokenUrl": "https://p/token", "scopes": {"token": "of this name"}}},
    },
    "rawAuthCredential": {
        "authType": "oauth2",
        "resourceRef": "r",
        "apiKey": "SECRET",
        "http": {
            "scheme": "basic",
            "credentials": {"username": "u", "password": "SECRET", "token": "SECRET"},
            "additionalHeaders": {"x": "SECRET"},
        },
        "serviceAccount": {"serviceAccountCredential": {"privateKey": "SECRET", "private_key_id": "SECRET"}},
    },
    "exchangedAuthCredential": {
        "authType": "oauth2",
        "oauth2": {
            "clientId": "i",
            "authUri": "https://p/authorize",
            "state": "st",
            "redirectUri": "https://r",
            **dict.fromkeys(("clientSecret", "authResponseUri", "authCode", "accessToken", "refreshToken"), "SECRET"),
            **dict.fromkeys(("id_token", "code_verifier"), "SECRET"),
        },
    },
    "credentialKey": "k",
}

AUTH_CONFIG_SHOWN: Json = {
    "authScheme": AUTH_CONFIG["authScheme"],
    "rawAuthCredential": {
        "authType": "oauth2",
        "resourceRef": "r",
        "http": {"scheme": "basic", "credentials": {"username": "u"}},
        "serviceAccount": {"serviceAccountCredential": {}},
    },
    "exchangedAuthCredential": {
        "authType": "oauth2",
        "oauth2": {"clientId": "i", "authUri": "https://p/authorize", "state": "st", "redirectUri": "https://r"},
    },
    "credentialKey": "k",
}


def asking(config: Json) -> list[Json]:
    """The three places of a log in which a credential is spoken of."""
    call = {"id": "c2", "name": "adk_request_credential", "args": {"functionCallId": "c1", "authConfig": config}}
    answer = {"id": "c2", "name": "adk_request_credential", "response": config}
    return [
        {"author": "echo", "content": {"role": "user", "parts": [{"functionCall": call}]}},
        {"author": "echo", "actions": {"requestedAuthConfigs": {"c1": config}}},
        {"author": "user", "content": {"role": "user", "parts": [{"functionResponse": answer}]}},
    ]


async def test_an_imported_request_for_a_login_may_be_anything(server: Serving) -> None:
    said = {"author": "user", "content": {"role": "user", "parts": [{"text": "hi"}]}}
    asked = {"author": "echo", "actions": {"requestedAuthConfigs": {"c1": [], "c2": "x"}}}
    events = [said, asked, {"author": "echo", "id": "last"}]
    imported = await server.client.post(SESSIONS, json={"sessionId": "s-1", "events": events})
    imported.raise_for_status()
    run = await server.client.post(f"{SESSIONS}/s-1/events/last/edit", json={"streaming": False})
    await server.wait_for_status(run.json()["id"], "succeeded")


async def test_secrets_of_a_credential_are_shown_to_nobody(server: Serving) -> None:
    made = await server.client.post(SESSIONS, json={"sessionId": "s-1", "events": asking(AUTH_CONFIG)})
    got = await server.client.get(f"{SESSIONS}/s-1")
    page = await server.client.get(f"{SESSIONS}/s-1/events")
    for reply in (made, got, page):
        assert reply.status_code == 200
        assert "SECRET" not in reply.text
        call, actions, answer = reply.json()["events"]
        assert call["content"]["parts"] == asking(AUTH_CONFIG_SHOWN)[0]["content"]["parts"]
        assert actions["actions"]["requestedAuthConfigs"] == {"c1": AUTH_CONFIG_SHOWN}
        assert answer["content"]["parts"] == asking(AUTH_CONFIG_SHOWN)[2]["content"]["parts"]


async def test_what_an_agent_lets_slip_of_a_credential_is_not_shown(serve: Serve) -> None:
    class Careless(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
            yield Event(author=self.name, actions=EventActions(requested_auth_configs={"c1": AUTH_CONFIG}))

    server = await serve(Careless(name="careless"))
    session = await server.new_session("careless")
    replies = [await server.run("careless"), await server.client.get(session)]
    assert all(reply.status_code == 200 and "SECRET" not in reply.text for reply in replies)
    (event,) = replies[0].json()
    assert event["actions"]["requestedAuthConfigs"] == {"c1": AUTH_CONFIG_SHOWN}
