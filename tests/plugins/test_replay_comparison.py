"""Differences between a recorded run and a replayed one that count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from greenroom.plugins.recordings_file import RECORDINGS_CONFIG, REPLAY_CONFIG
from greenroom.plugins.replay import comparable_event, comparable_events, comparable_request, difference
from greenroom.records.content import QUOTED_IS_DATA, Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions, NodeInfo, ToolConfirmation
from greenroom.records.generation import GenerateContentConfig, LiveConnectConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration, Tool


def request(*texts: str, **config: Any) -> LlmRequest:
    contents = [Content(role="user", parts=[Part(text=text)]) for text in texts]
    return LlmRequest(model="m", contents=contents, config=GenerateContentConfig(**config))


def declaring(*declarations: FunctionDeclaration, **more: Any) -> LlmRequest:
    return request(tools=[Tool(function_declarations=list(declarations), **more)])


def same(one: LlmRequest, other: LlmRequest) -> bool:
    return comparable_request(one) == comparable_request(other)


# requests


@pytest.mark.parametrize(
    "config",
    [{"labels": {"a": "b"}}, {"http_options": {"timeout": 1}}, {"temperature": None}, {"tools": []}],
)
def test_transport_labels_nulls_and_defaults_are_ignored(config: dict[str, Any]) -> None:
    assert same(request("hi"), request("hi", **config))


def test_live_settings_are_ignored() -> None:
    live = msgspec.structs.replace(request("hi"), live_connect_config=LiveConnectConfig(response_modalities=["AUDIO"]))
    assert same(request("hi"), live)


@pytest.mark.parametrize(
    "other", [request("ho"), request("hi", "hi"), request("hi", temperature=0.5), request("hi", system_instruction="x")]
)
def test_everything_else_counts(other: LlmRequest) -> None:
    assert not same(request("hi"), other)


def test_the_request_is_not_changed() -> None:
    one = declaring(FunctionDeclaration(name="f", description="d"))
    before = repr(one)
    comparable_request(one)
    assert repr(one) == before


def test_tools_are_equal_in_any_order() -> None:
    one, other = FunctionDeclaration(name="f", description="d"), FunctionDeclaration(name="e")
    assert same(declaring(one, other), declaring(other, one))
    assert not same(declaring(one), declaring(one, other))
    assert not same(declaring(one), declaring(msgspec.structs.replace(one, description="e")))
    assert not same(declaring(one), declaring(one, google_search={}))


def test_agents_side_by_side_may_take_turns_otherwise() -> None:
    def request(*texts: str) -> LlmRequest:
        contents = [Content(role="user", parts=[Part(text="go")])]
        contents += [Content(role="user", parts=[Part(text="For context:"), Part(text=text)]) for text in texts]
        return LlmRequest(contents=contents)

    assert same(
        request("[a] said: 1", "[b] said: 2", "[a] said: 3"), request("[b] said: 2", "[a] said: 1", "[a] said: 3")
    )
    assert not same(request("[a] said: 1", "[a] said: 3"), request("[a] said: 3", "[a] said: 1"))


def test_words_of_other_agents_are_equal_with_and_without_tags() -> None:
    def request(first: str, text: str) -> LlmRequest:
        return LlmRequest(contents=[Content(role="user", parts=[Part(text=first), Part(text=text)])])

    old = request("For context:", "[a] said: 1")
    assert same(old, request(QUOTED_IS_DATA, "[a] said: <quoted>1</quoted>"))
    assert not same(old, request(QUOTED_IS_DATA, "[a] said: <quoted>2</quoted>"))


# events


def event(**more: Any) -> Event:
    return Event(author="a", **more)


def test_what_is_made_again_in_every_run_is_ignored_in_events() -> None:
    def made(call_id: str, signature: bytes) -> Event:
        return event(
            invocation_id=call_id,
            long_running_tool_ids=[call_id],
            node_info=NodeInfo(path=call_id),
            content=Content(
                role="model",
                parts=[
                    Part(function_call=FunctionCall(id=call_id, name="f", args={"id": 1}), thought_signature=signature),
                    Part(function_response=FunctionResponse(id=call_id, name="f", response={"id": 2})),
                ],
            ),
            actions=EventActions(
                state_delta={RECORDINGS_CONFIG: {"dir": call_id}, REPLAY_CONFIG: {}, "kept": 1},
                requested_auth_configs={call_id: {}},
                requested_tool_confirmations={call_id: ToolConfirmation(hint=call_id)},
            ),
        )

    one = comparable_event(made("c-1", b"1"))
    assert one == comparable_event(made("c-2", b"2"))
    assert one == {
        "author": "a",
        "content": {
            "role": "model",
            "parts": [
                {"function_call": {"name": "f", "args": {"id": 1}}},
                {"function_response": {"name": "f", "response": {"id": 2}}},
            ],
        },
        "actions": {"state_delta": {"kept": 1}},
    }


def test_events_of_branches_side_by_side_are_compared_branch_by_branch() -> None:
    left, right, after = (
        event(branch=branch, content=Content(parts=[Part(text=str(branch))])) for branch in ("t.left", "t.right", None)
    )
    assert comparable_events([left, right, left, after]) == comparable_events([right, left, left, after])
    assert comparable_events([left, after]) != comparable_events([after, left])


# what is shown


def test_a_difference_is_a_diff_in_yaml_and_not_too_long() -> None:
    assert difference({"a": 1}, {"a": 1}) == ""
    assert difference({"a": 1, "b": [1]}, {"a": 1, "b": [2]}).splitlines()[2:] == [
        "@@ -1,3 +1,3 @@",
        " a: 1",
        " b:",
        "-- 1",
        "+- 2",
    ]
    long = difference(list(range(500)), list(range(500, 1000)))
    assert len(long.splitlines()) == 61
    assert long.endswith("more lines")
