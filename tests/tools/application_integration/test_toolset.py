"""Against a small server that speaks the wire format of Google's connectors and integrations."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import MissingExtra
from greenroom.google_cloud.credentials import GoogleCredentialsRefused
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    HttpAuth,
    HttpCredentials,
)
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.application_integration.connector_api import ConnectorAccessRefused, IntegrationError
from greenroom.tools.application_integration.toolset import ApplicationIntegrationToolset
from greenroom.tools.login.credential_provider import PENDING
from greenroom.tools.tool import BaseTool
from tests.agents.talk import Talk, call, lines_of
from tests.server.serving import serving
from tests.tools.one_call import call_once, offered

pytestmark = pytest.mark.slow

Json = dict[str, Any]

PLACE = "projects/p-1/locations/europe-west1"
CONNECTION = f"{PLACE}/connections/crm"
ISSUE: Json = {
    "type": "object",
    "properties": {
        "title": {"type": ["string", "null"], "description": "What is wrong."},
        "row": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
    },
}
DOCUMENT: Json = {
    "openapi": "3.0.1",
    "paths": {
        "/v2/projects/p-1/locations/europe-west1/integrations/greet:execute?triggerId=api_trigger/greet": {
            "post": {
                "operationId": "greetSomeone",
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"type": "object", "properties": {"who": {"type": "string"}}}}
                    }
                },
            }
        }
    },
}


@cache
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return plain.decode()


@dataclass
class Google:
    url: str = ""
    connection: Json = field(default_factory=lambda: {"name": CONNECTION, "serviceDirectory": "dir-1"})
    tokens: list[Json] = field(default_factory=list)
    calls: list[tuple[str, str, Json | None]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: dict[str, Response] = field(default_factory=dict)
    polls_left: int = 2
    refused_tokens: set[str] = field(default_factory=set)

    async def token(self, request: Request) -> Response:
        form = parse_qs((await request.body()).decode())
        self.tokens.append({key: values[0] for key, values in form.items()})
        if "token" in self.answers:
            return self.answers["token"]
        return JSONResponse({"access_token": f"g-{len(self.tokens)}", "expires_in": 3600, "token_type": "Bearer"})

    async def other(self, request: Request) -> Response:
        body = await request.body()
        path = f"{request.url.path}?{request.url.query}".rstrip("?")
        self.calls.append((request.method, path, json.loads(body) if body else None))
        self.headers.append(dict(request.headers))
        if request.headers.get("authorization", "")[7:] in {"", *self.refused_tokens}:
            return Response(status_code=401)
        answer = next((reply for key, reply in self.answers.items() if key in path), None)
        return answer or self.described(path)

    def described(self, path: str) -> Response:
        if "getEntityType" in path:
            return JSONResponse({"name": "operations/entity"})
        if "getAction" in path:
            return JSONResponse({"name": f"operations/{path.rpartition('=')[2]}"})
        if "operations/" in path:
            self.polls_left -= 1
            return JSONResponse(
                {"done": True, "response": OPERATIONS[path.rpartition("/")[2]]} if self.polls_left <= 0 else {}
            )
        if ":generateOpenApiSpec" in path:
            return JSONResponse({"openApiSpec": json.dumps({**DOCUMENT, "servers": [{"url": self.url}]})})
        if ":execute" in path:
            return JSONResponse({"connectorOutputPayload": [{"title": "Broken"}]})
        return JSONResponse(self.connection) if "/connections/" in path else Response(status_code=404)

    def key(self, **changes: Any) -> str:
        return json.dumps(
            {
                "type": "service_account",
                "project_id": "p-1",
                "private_key": private_key(),
                "client_email": "bot@p-1.iam.gserviceaccount.com",
                "token_uri": f"{self.url}/token",
                **changes,
            }
        )

    def toolset(self, **options: Any) -> ApplicationIntegrationToolset:
        given: Json = {
            "project": "p-1",
            "location": "europe-west1",
            "service_account_json": self.key(),
            "connectors_url": self.url,
            "integrations_url": self.url,
            "allow_private_network_access": True,
            "poll_seconds": 0.001,
            **options,
        }
        return ApplicationIntegrationToolset(**given)

    def connector(self, **options: Any) -> ApplicationIntegrationToolset:
        return self.toolset(connection="crm", **options)

    def executed(self) -> list[Json]:
        return [body or {} for _, path, body in self.calls if ":execute" in path]


OPERATIONS: Json = {
    "entity": {"jsonSchema": ISSUE, "operations": ["LIST", "GET", "CREATE", "UPDATE", "DELETE"]},
    "closeAll": {
        "displayName": "Close All",
        "description": "Closes them.",
        "inputJsonSchema": ISSUE,
        "outputJsonSchema": ISSUE,
    },
    "closeEvery": {"displayName": "Close All"},
    "closeEach": {"displayName": "Close  All"},
    "ExecuteCustomQuery": {"displayName": "Custom Query"},
}


@pytest.fixture
async def google() -> AsyncIterator[Google]:
    known = Google()
    app = Starlette(
        routes=[
            Route("/token", known.token, methods=["POST"]),
            Route("/{path:path}", known.other, methods=["GET", "POST"]),
        ]
    )
    async with serving(cast("Any", app)) as server:
        known.url = server.url
        yield known


def shown(tool: BaseTool) -> Json:
    declaration = tool._get_declaration()
    assert declaration is not None
    return declaration.json_schema()


@pytest.mark.parametrize(
    "given",
    [{}, {"integration": "i"}, {"triggers": ["t"]}, {"connection": "c"}, {"connection": "c", "entity_operations": {}}],
)
def test_an_integration_or_a_connection_is_needed(given: Json) -> None:
    with pytest.raises(ValueError, match="triggers"):
        ApplicationIntegrationToolset("p", "l", **given)


@pytest.mark.parametrize("key", ["{", "[]", "not json"])
def test_a_key_that_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="service_account_json"):
        ApplicationIntegrationToolset("p", "l", connection="c", actions=["a"], service_account_json=key)


async def test_nothing_is_asked_before_the_tools_are(google: Google) -> None:
    await google.connector(actions=["closeAll"]).close()
    assert google.calls == []


async def test_the_key_is_exchanged_for_a_token_once(google: Google) -> None:
    await offered(google.connector(entity_operations={"Issues": ["GET"]}))
    (request,) = google.tokens
    assert request["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert {headers["authorization"] for headers in google.headers} == {"Bearer g-1"}


async def test_a_connection_is_looked_up_and_its_entities_described(google: Google) -> None:
    await offered(google.connector(entity_operations={"Is sues": ["LIST"]}))
    meta = f"/v1/{CONNECTION}/connectionSchemaMetadata:getEntityType?entityId=Is%20sues"
    assert [call[:2] for call in google.calls] == [
        ("GET", f"/v1/{CONNECTION}?view=BASIC"),
        ("GET", meta),
        ("GET", "/v1/operations/entity"),
        ("GET", "/v1/operations/entity"),
    ]


async def test_an_empty_list_means_all_operations(google: Google) -> None:
    assert list(await offered(google.connector(entity_operations={"Issues": []}))) == [
        "list_issues", "get_issues", "create_issues", "update_issues", "delete_issues",
    ]  # fmt: skip


async def test_tools_are_named_after_prefix_operation_and_entity_or_action(google: Google) -> None:
    toolset = google.connector(
        entity_operations={"Issues": ["list", "GET"]},
        actions=["closeAll", "ExecuteCustomQuery"],
        tool_name_prefix="crm",
    )
    assert list(await offered(toolset)) == ["crm_list_issues", "crm_get_issues", "crm_close_all", "crm_custom_query"]


async def test_actions_of_one_display_name_are_distinguished(google: Google) -> None:
    toolset = google.connector(actions=["closeAll", "closeEvery", "closeEach"])
    assert list(await offered(toolset)) == ["close_all", "close_all_2", "close_all_3"]
    await call_once(toolset, "close_all_2", {"connector_input_payload": {"title": "T"}})
    assert google.executed()[0]["action"] == "closeEvery"


async def test_tool_name_is_another_name_of_the_prefix(google: Google) -> None:
    assert list(await offered(google.connector(actions=["closeAll"], tool_name="crm"))) == ["crm_close_all"]


async def test_an_unknown_operation_is_refused(google: Google) -> None:
    with pytest.raises(ValueError, match="'PURGE' on entity 'Issues'"):
        await offered(google.connector(entity_operations={"Issues": ["PURGE"]}))


PLAIN_ISSUE: Json = {
    "type": "object",
    "properties": {
        "title": {"type": ["string", "null"], "description": "What is wrong."},
        "row": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
    },
}


@pytest.mark.parametrize(
    ("operation", "fields", "required"),
    [
        ("LIST", ["filter_clause", "page_size", "page_token", "sort_by_columns"], None),
        ("GET", ["entity_id"], ["entity_id"]),
        ("CREATE", ["connector_input_payload"], ["connector_input_payload"]),
        ("UPDATE", ["connector_input_payload", "entity_id", "filter_clause"], ["connector_input_payload", "entity_id"]),
        ("DELETE", ["entity_id", "filter_clause"], ["entity_id"]),
    ],
)
async def test_a_model_sees_only_what_it_must_say(
    google: Google, operation: str, fields: list[str], required: list[str] | None
) -> None:
    (tool,) = (
        await offered(google.connector(entity_operations={"Issues": [operation]}, tool_instructions="Be kind."))
    ).values()
    schema = shown(tool)
    assert list(schema["properties"]) == fields
    assert schema.get("required") == required
    assert tool.description.endswith(" Be kind.")
    if "connector_input_payload" in fields:
        assert schema["properties"]["connector_input_payload"] == PLAIN_ISSUE


@pytest.mark.parametrize(
    ("operation", "args", "sent"),
    [
        ("LIST", {"page_size": 3.0, "sort_by_columns": ["a"]}, {"pageSize": 3, "sortByColumns": ["a"]}),
        ("GET", {"entity_id": "7"}, {"entityId": "7"}),
        ("CREATE", {"connector_input_payload": {"title": "T"}}, {"connectorInputPayload": {"title": "T"}}),
        ("DELETE", {"entity_id": "7", "host": "evil", "dynamic_auth_config": {"x": 1}}, {"entityId": "7"}),
    ],
)
async def test_the_hidden_fields_are_filled_in(google: Google, operation: str, args: Json, sent: Json) -> None:
    toolset = google.connector(entity_operations={"Issues": [operation]})
    assert (await call_once(toolset, f"{operation.lower()}_issues", args)).response == {
        "connectorOutputPayload": [{"title": "Broken"}]
    }
    kind = "LIST_ENTITIES" if operation == "LIST" else f"{operation}_ENTITY"
    hidden = {"connectionName": CONNECTION, "serviceName": "dir-1", "host": "", "entity": "Issues", "operation": kind}
    assert google.executed() == [{**hidden, **sent}]


async def test_an_integration_executes_the_calls(google: Google) -> None:
    for template, name in [(None, "ExecuteConnection"), ("Mine", "Mine")]:
        toolset = google.connector(entity_operations={"Issues": ["LIST"]}, connection_template_override=template)
        await call_once(toolset, "list_issues", {})
        path = f"/v2/{PLACE}/integrations/{name}:execute?triggerId=api_trigger%2F{name}"
        assert google.calls[-1][:2] == ("POST", path)
        assert google.headers[-1]["authorization"].startswith("Bearer g-")


async def test_a_connection_with_a_host_has_another_directory(google: Google) -> None:
    google.connection |= {"host": "crm.internal.test", "tlsServiceDirectory": "tls-1"}
    await call_once(google.connector(entity_operations={"Issues": ["LIST"]}), "list_issues", {})
    (body,) = google.executed()
    assert (body["host"], body["serviceName"]) == ("crm.internal.test", "tls-1")


async def test_an_action_takes_its_own_input(google: Google) -> None:
    toolset = google.connector(actions=["closeAll"])
    (tool,) = (await offered(toolset)).values()
    assert tool.description == "Closes them."
    assert shown(tool)["properties"] == {"connector_input_payload": PLAIN_ISSUE}
    await call_once(toolset, "close_all", {"connector_input_payload": {"title": "T"}})
    assert google.executed() == [
        {
            "connectorInputPayload": {"title": "T"},
            "connectionName": CONNECTION,
            "serviceName": "dir-1",
            "host": "",
            "action": "closeAll",
            "operation": "EXECUTE_ACTION",
        }
    ]


async def test_a_custom_query_has_a_time_and_a_page_size(google: Google) -> None:
    toolset = google.connector(actions=["ExecuteCustomQuery"])
    (tool,) = (await offered(toolset)).values()
    assert shown(tool)["required"] == ["query"]
    await call_once(toolset, "custom_query", {"query": "SELECT 1"})
    (body,) = google.executed()
    sent = {name: body[name] for name in ("query", "timeout", "pageSize", "operation", "action")}
    assert sent == {
        "query": "SELECT 1",
        "timeout": 120,
        "pageSize": 50,
        "operation": "EXECUTE_QUERY",
        "action": "ExecuteCustomQuery",
    }


async def test_the_triggers_of_an_integration_are_tools(google: Google) -> None:
    toolset = google.toolset(integration="greet", triggers=["api_trigger/greet"], tool_name_prefix="my")
    assert (await call_once(toolset, "my_greet_someone", {"who": "Ada"})).response == {
        "connectorOutputPayload": [{"title": "Broken"}]
    }
    described, executed = google.calls
    resource = {"integrationResource": "greet", "triggerId": ["api_trigger/greet"]}
    assert described == (
        "POST", f"/v1/{PLACE}:generateOpenApiSpec", {"apiTriggerResources": [resource], "fileFormat": "JSON"},
    )  # fmt: skip
    assert executed == ("POST", f"/v2/{PLACE}/integrations/greet:execute?triggerId=api_trigger%2Fgreet", {"who": "Ada"})


async def test_a_refused_token_is_fetched_again(google: Google) -> None:
    toolset = google.connector(entity_operations={"Issues": ["LIST"]})
    google.refused_tokens = {"g-2"}
    assert "connectorOutputPayload" in (await call_once(toolset, "list_issues", {})).response
    assert google.headers[-1]["authorization"] == "Bearer g-3"


USER_SCHEME = AuthScheme(type="http", scheme="bearer")


def of_user(token: str) -> AuthCredential:
    return AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=HttpAuth(credentials=HttpCredentials(token=token)))


async def test_the_users_token_is_handed_on_where_the_connection_allows_it(google: Google) -> None:
    google.connection["authOverrideEnabled"] = True
    toolset = google.connector(
        entity_operations={"Issues": ["LIST"]}, auth_scheme=USER_SCHEME, auth_credential=of_user("mine-1")
    )
    await call_once(toolset, "list_issues", {"dynamic_auth_config": {"x": "evil"}})
    (body,) = google.executed()
    assert body["dynamicAuthConfig"] == {"oauth2_auth_code_flow.access_token": "mine-1"}
    assert google.headers[-1]["authorization"] == "Bearer g-2"


async def test_without_the_users_token_the_user_is_asked(google: Google) -> None:
    google.connection["authOverrideEnabled"] = True
    as_map = {"type": "http", "scheme": "bearer"}
    toolset = google.connector(entity_operations={"Issues": ["LIST"]}, auth_scheme=as_map)
    made = await call_once(toolset, "list_issues", {})
    assert made.response == PENDING
    key = AuthConfig(auth_scheme=USER_SCHEME).credential_key
    assert made.actions.requested_auth_configs["call-1"]["credentialKey"] == key
    assert google.executed() == []


async def test_where_the_connection_does_not_allow_it_a_warning_says_so(
    google: Google, caplog: pytest.LogCaptureFixture
) -> None:
    toolset = google.connector(
        entity_operations={"Issues": ["LIST"]}, auth_scheme=USER_SCHEME, auth_credential=of_user("mine-1")
    )
    with caplog.at_level(logging.WARNING, "greenroom.tools"):
        await call_once(toolset, "list_issues", {})
    assert "does not allow calls in the name of its users" in caplog.text
    assert "dynamicAuthConfig" not in google.executed()[0]


@pytest.mark.parametrize("status", [400, 404])
async def test_names_that_google_does_not_know_are_a_value_error(google: Google, status: int) -> None:
    google.answers["view=BASIC"] = Response(status_code=status)
    with pytest.raises(IntegrationError, match="check the names") as raised:
        await offered(google.connector(actions=["closeAll"]))
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("answer", [PlainTextResponse("hm"), Response(status_code=500), JSONResponse([])])
async def test_a_bad_answer_is_a_value_error(google: Google, answer: Response) -> None:
    google.answers["view=BASIC"] = answer
    with pytest.raises(IntegrationError):
        await offered(google.connector(actions=["closeAll"]))


@pytest.mark.parametrize("answer", [{}, {"openApiSpec": "no"}, {"openApiSpec": "[]"}, {"openApiSpec": 3}])
async def test_a_bad_document_is_a_value_error(google: Google, answer: Json) -> None:
    google.answers[":generateOpenApiSpec"] = JSONResponse(answer)
    with pytest.raises(IntegrationError):
        await offered(google.toolset(integration="greet", triggers=["t"]))


@pytest.mark.parametrize("answer", [{}, {"name": "operations/x", "done": True, "error": {"code": 5}}])
async def test_an_entity_that_is_not_described_is_a_value_error(google: Google, answer: Json) -> None:
    google.answers["getEntityType"] = JSONResponse(answer)
    with pytest.raises(IntegrationError, match="describe"):
        await offered(google.connector(entity_operations={"Issues": []}))


@pytest.mark.parametrize("status", [401, 403])
async def test_a_service_account_without_a_role_is_a_permission_error(google: Google, status: int) -> None:
    google.answers["view=BASIC"] = Response(status_code=status)
    with pytest.raises(ConnectorAccessRefused) as raised:
        await offered(google.connector(actions=["closeAll"]))
    assert isinstance(raised.value, PermissionError)


async def test_a_refused_key_is_a_permission_error_without_the_key(google: Google) -> None:
    google.answers["token"] = JSONResponse({"error": "invalid_grant"}, status_code=400)
    with pytest.raises(GoogleCredentialsRefused) as raised:
        await offered(google.connector(actions=["closeAll"]))
    assert isinstance(raised.value, PermissionError)
    for changes in (
        {"private_key": "-----BEGIN secret"},
        {"client_email": None},
        {"token_uri": "http://127.0.0.1:1/t"},
    ):
        with pytest.raises(GoogleCredentialsRefused) as raised:
            await offered(google.connector(actions=["closeAll"], service_account_json=google.key(**changes)))
        assert "secret" not in str(raised.value)


async def test_without_a_key_the_machines_own_credentials_are_used(
    google: Google, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(GoogleCredentialsRefused):
        await offered(google.connector(actions=["closeAll"], service_account_json=None))
    file.write_text(google.key())
    await offered(google.connector(actions=["closeAll"], service_account_json=None))
    assert {headers.get("x-goog-user-project") for headers in google.headers} == {"p-1"}
    google.headers.clear()
    await offered(google.connector(actions=["closeAll"]))
    assert {headers.get("x-goog-user-project") for headers in google.headers} == {None}


async def test_a_key_refused_later_is_reported_to_the_model(google: Google) -> None:
    toolset = google.connector(entity_operations={"Issues": ["LIST"]})
    await offered(toolset)
    google.answers["token"] = JSONResponse({"error": "invalid_grant"}, status_code=400)
    answer = (await call_once(toolset, "list_issues", {})).response
    assert answer["error"].startswith("list_issues failed: Google gave no access token")


async def test_without_google_auth_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "google"] or ["google"]:
        monkeypatch.setitem(sys.modules, module, None)
    toolset = ApplicationIntegrationToolset("p", "l", connection="c", actions=["a"])
    with pytest.raises(MissingExtra, match="google"):
        await toolset.get_tools()
    await toolset.close()


async def test_the_filter_knows_whole_names(google: Google) -> None:
    toolset = google.connector(entity_operations={"Issues": []}, tool_name_prefix="crm", tool_filter=["crm_get_issues"])
    assert list(await offered(toolset)) == ["crm_get_issues"]


async def test_a_model_works_with_a_connector(google: Google) -> None:
    toolset = google.connector(entity_operations={"Issues": ["LIST", "GET"]})
    model = ScriptedModel([call("list_issues", "c1", page_size=1), call("get_issues", "c2"), "One is broken."])
    lines = lines_of(await Talk(LlmAgent(name="desk", model=model, tools=[toolset])).say("What is broken?"))
    assert lines[:2] == [
        "desk: list_issues(page_size=1)",
        "desk: list_issues -> {'connectorOutputPayload': [{'title': 'Broken'}]}",
    ]
    assert "mandatory arguments are missing:\\nentity_id" in lines[3]
    assert [d.name for d in model.requests[0].function_declarations()] == ["list_issues", "get_issues"]
    await toolset.close()
