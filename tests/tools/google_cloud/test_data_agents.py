"""Against a small server that speaks the REST API of Gemini Data Analytics."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.oauth2.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]
from starlette.responses import JSONResponse, Response

from greenroom import DataAgentCredentialsConfig, DataAgentToolConfig, DataAgentToolset
from greenroom.tools.google_cloud.data_agents import endpoint_of
from tests.tools.google_api.server import GoogleServer, Json, Seen, refusal
from tests.tools.google_cloud.declarations import BY_ADK, declared_parameters
from tests.tools.one_call import call_once

AGENTS = "projects/p-1/locations/eu/dataAgents"
AGENT = f"{AGENTS}/a-1"


async def ask(google: GoogleServer, name: str, args: Json, **settings: Any) -> Json:
    config = DataAgentToolConfig(api_endpoint=google.url, enable_data_agent_modification=True, **settings)
    credentials = DataAgentCredentialsConfig(credentials=Credentials(token="t-1"))
    toolset = DataAgentToolset(credentials_config=credentials, data_agent_tool_config=config)
    return (await call_once(toolset, name, args)).response


async def test_the_tools_are_declared_as_in_adk() -> None:
    settings = DataAgentToolConfig(enable_data_agent_modification=True)
    by_adk = BY_ADK["DataAgentToolset"]
    assert await declared_parameters(DataAgentToolset(data_agent_tool_config=settings)) == by_adk
    reading = ["list_accessible_data_agents", "get_data_agent_info", "ask_data_agent"]
    assert list(await declared_parameters(DataAgentToolset())) == reading


async def test_agents_are_listed_by_pages_or_all(google: GoogleServer) -> None:
    def page(seen: Seen) -> Response:
        token = dict(seen.query).get("pageToken")
        names = {None: ["a-1", "a-2"], "next": ["a-3"]}[token]
        more = {} if token else {"nextPageToken": "next"}
        return JSONResponse({"dataAgents": [{"name": name} for name in names], **more})

    google.answers[f"GET /v1/{AGENTS}:listAccessible"] = page
    args = {"project_id": "p-1", "location": "eu"}
    listed = await ask(google, "list_accessible_data_agents", args)
    assert listed == {"status": "SUCCESS", "response": [{"name": "a-1"}, {"name": "a-2"}, {"name": "a-3"}]}
    assert google.last.headers["authorization"] == "Bearer t-1"

    first = await ask(google, "list_accessible_data_agents", {"project_id": "p-1", "page_size": 2}, location="eu")
    assert (len(first["response"]), first["nextPageToken"]) == (2, "next")
    second = await ask(google, "list_accessible_data_agents", {**args, "page_token": "next"})
    assert second == {"status": "SUCCESS", "response": [{"name": "a-3"}]}


async def test_an_agent_is_described(google: GoogleServer) -> None:
    google.answers[f"GET /v1/{AGENT}"] = {"name": AGENT, "description": "Sales."}
    found = await ask(google, "get_data_agent_info", {"data_agent_name": AGENT})
    assert found == {"status": "SUCCESS", "response": {"name": AGENT, "description": "Sales."}}


async def test_an_agent_answers_with_its_steps_and_the_newest_table(google: GoogleServer) -> None:
    table = {"schema": {"fields": [{"name": "n"}]}, "data": [{"n": 1}, {"n": 2}, {"n": 3}]}
    google.answers["POST /v1/projects/p-1/locations/eu:chat"] = [
        {"systemMessage": {"data": {"result": table}}},
        {"systemMessage": {"data": {"result": table}}},
        {"systemMessage": {"text": {"parts": ["Three."]}}},
    ]
    args = {"data_agent_name": AGENT, "query": "How many?"}
    found = await ask(google, "ask_data_agent", args, max_query_result_rows=2)
    assert found["response"] == [
        {"Data Retrieved": "Intermediate result omitted"},
        {"Data Retrieved": {"headers": ["n"], "rows": [[1], [2]], "summary": "Showing the first 2 of 3 rows."}},
        {"text": {"parts": ["Three."]}},
    ]
    assert google.last.body == {
        "messages": [{"userMessage": {"text": "How many?"}}],
        "dataAgentContext": {"dataAgent": AGENT},
    }


async def test_agents_are_created_changed_and_deleted(google: GoogleServer) -> None:
    operation = "projects/p-1/locations/eu/operations/o-1"
    google.answers[f"POST /v1/{AGENTS}"] = {"name": operation}
    google.answers[f"PATCH /v1/{AGENT}"] = {"name": operation}
    google.answers[f"DELETE /v1/{AGENT}"] = {}
    google.answers[f"GET /v1/{operation}"] = {"name": operation, "done": True, "response": {"name": AGENT}}

    config = json.dumps({"displayName": "One"})
    args = {"project_id": "p-1", "data_agent_id": "a-1", "agent_config": config, "location": "eu"}
    assert await ask(google, "create_data_agent", args) == {"status": "SUCCESS", "response": {"name": AGENT}}
    created = google.seen[0]
    assert (created.query, created.body) == ([("dataAgentId", "a-1")], {"displayName": "One"})

    change = {"data_agent_name": AGENT, "agent_config": config, "update_mask": "displayName, "}
    assert (await ask(google, "update_data_agent", change))["response"] == {"name": AGENT}
    assert google.seen[-2].query == [("updateMask", "displayName")]

    assert await ask(google, "delete_data_agent", {"data_agent_name": AGENT}) == {"status": "SUCCESS", "response": {}}


async def test_a_change_that_takes_too_long_or_fails_is_an_error(google: GoogleServer) -> None:
    operation = "projects/p-1/locations/eu/operations/o-1"
    google.answers[f"DELETE /v1/{AGENT}"] = {"name": operation}
    google.answers[f"GET /v1/{operation}"] = {"name": operation}
    late = await ask(google, "delete_data_agent", {"data_agent_name": AGENT}, data_agent_modification_timeout_seconds=1)
    assert "not done after 1 seconds" in late["error_details"]
    google.answers[f"GET /v1/{operation}"] = {"name": operation, "done": True, "error": {"message": "In use"}}
    failed = await ask(google, "delete_data_agent", {"data_agent_name": AGENT})
    assert "In use" in failed["error_details"]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("get_data_agent_info", {"data_agent_name": "a-1"}),
        ("get_data_agent_info", {"data_agent_name": "projects/../locations/eu/dataAgents/a"}),
        ("get_data_agent_info", {"data_agent_name": "projects/p/locations/evil.example/dataAgents/a"}),
        ("ask_data_agent", {"data_agent_name": f"{AGENT}/x", "query": "?"}),
        ("list_accessible_data_agents", {"project_id": "p/1"}),
        ("list_accessible_data_agents", {"project_id": "p-1", "location": "x/y"}),
        ("list_accessible_data_agents", {"project_id": "p-1", "page_size": 0}),
        ("create_data_agent", {"project_id": "p-1", "data_agent_id": "a/b", "agent_config": "{}"}),
        ("create_data_agent", {"project_id": "p-1", "data_agent_id": "a", "agent_config": "nonsense"}),
        ("create_data_agent", {"project_id": "p-1", "data_agent_id": "a", "agent_config": "[]"}),
        ("update_data_agent", {"data_agent_name": AGENT, "agent_config": "{}", "update_mask": "displayName"}),
        ("update_data_agent", {"data_agent_name": AGENT, "agent_config": '{"a": 1}', "update_mask": "a.b"}),
        ("update_data_agent", {"data_agent_name": AGENT, "agent_config": "{}", "update_mask": " "}),
    ],
)
async def test_invalid_arguments_are_refused(google: GoogleServer, name: str, args: Json) -> None:
    assert (await ask(google, name, args))["status"] == "ERROR"
    assert google.seen == []


async def test_a_refusal_is_a_result_for_the_model(google: GoogleServer) -> None:
    google.answers[f"GET /v1/{AGENT}"] = refusal(403, "PERMISSION_DENIED", "Not allowed")
    refused = await ask(google, "get_data_agent_info", {"data_agent_name": AGENT})
    assert refused == {"status": "ERROR", "error_details": "403 PERMISSION_DENIED: Not allowed"}


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("global", "geminidataanalytics.googleapis.com"),
        ("eu", "geminidataanalytics.eu.rep.googleapis.com"),
        ("europe-west1", "geminidataanalytics-europe-west1.googleapis.com"),
    ],
)
def test_the_endpoint_follows_from_the_location(location: str, host: str) -> None:
    assert endpoint_of(location) == f"https://{host}"
    assert endpoint_of(location, "proxy.example") == "https://proxy.example"


@pytest.mark.parametrize("name", ["timeout", "poll_interval"])
def test_waits_must_be_positive(name: str) -> None:
    setting: Json = {f"data_agent_modification_{name}_seconds": 0}
    with pytest.raises(ValueError, match=name):
        DataAgentToolConfig(**setting)
