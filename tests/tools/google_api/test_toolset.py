"""Against a small server with an API of its own, described by a discovery document."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import PlainTextResponse, Response

import greenroom
from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, ToolError
from greenroom.records.auth import AuthScheme, ServiceAccount
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.google_api.discovery import to_openapi
from greenroom.tools.google_api.tool import GoogleApiTool
from greenroom.tools.google_api.toolset import GoogleApiToolset
from greenroom.tools.login.credential_provider import PENDING
from tests.credentials.authorization_server import CLIENT_ID, CLIENT_SECRET, AuthorizationServer
from tests.credentials.desk import call, consent, requests_of, responses_of, say, serve
from tests.tools.google_api.server import GoogleServer, Json, refusal
from tests.tools.one_call import call_once, offered

HERE = Path(__file__).parent
NOTES: Json = json.loads((HERE / "notes.json").read_text())
BY_ADK: list[Json] = json.loads((HERE / "notes_by_adk.json").read_text())
"""The declarations that ADK 2.13 makes of the same document."""

DISCOVERY = "GET /discovery/v1/apis/notes/v1/rest"
BOOKS = "GET /notes/v1/users/ada/books"


def serve_notes(google: GoogleServer) -> None:
    google.answers[DISCOVERY] = {**NOTES, "rootUrl": f"{google.url}/"}


def notes(google: GoogleServer, **options: Any) -> GoogleApiToolset:
    serve_notes(google)
    given: Json = {
        "discovery_url": f"{google.url}/discovery/v1/apis/{{api}}/{{apiVersion}}/rest",
        "service_account": ServiceAccount(service_account_credential=google.service_account()),
        "allow_private_network_access": True,
        **options,
    }
    return GoogleApiToolset("notes", "v1", **given)


async def test_the_tools_are_declared_as_in_adk(google: GoogleServer) -> None:
    declared: list[Json] = []
    for tool in (await offered(notes(google))).values():
        assert isinstance(tool, GoogleApiTool)
        declaration = tool._get_declaration()  # pyright: ignore[reportPrivateUsage]
        schema = declaration.parameters_json_schema or {}
        kept = ("type", "enum", "format", "default", "pattern")
        declared.append(
            {
                "name": declaration.name,
                "description": declaration.description,
                "properties": {
                    name: {key: value for key, value in one.items() if key in kept}
                    for name, one in schema["properties"].items()
                },
                "required": schema.get("required", []),
            }
        )
    assert declared == BY_ADK


async def test_the_document_is_read_once_and_only_when_the_tools_are_needed(google: GoogleServer) -> None:
    toolset = notes(google)
    assert google.seen == []
    await toolset.get_tools()
    await toolset.get_tools()
    await toolset.close()
    assert google.calls() == [DISCOVERY]


async def test_arguments_go_where_the_document_says(google: GoogleServer) -> None:
    google.answers[BOOKS] = {"items": [{"id": "b-1"}]}
    google.answers["POST /notes/v1/books/b%201/notes"] = {"id": "n-1"}
    google.answers["DELETE /notes/v1/books/b-1/notes/n-1"] = Response(status_code=204)

    made = await call_once(notes(google), "notes_books_list", {"user_id": "ada", "max_results": 5})
    assert made.response == {"items": [{"id": "b-1"}]}
    assert google.last.query == [("maxResults", "5")]
    assert google.last.headers["authorization"] == "Bearer sa-token"

    note = {"book_id": "b 1", "note_title": "T", "author": {"displayName": "Ada"}}
    assert (await call_once(notes(google), "notes_books_notes_insert", note)).response == {"id": "n-1"}
    assert google.last.body == {"noteTitle": "T", "author": {"displayName": "Ada"}}

    removed = {"book_id": "b-1", "note_id": "n-1"}
    assert (await call_once(notes(google), "notes_books_notes_delete", removed)).response == {"text": ""}


async def test_a_verb_after_a_path_variable_stays_in_the_path(google: GoogleServer) -> None:
    google.answers["POST /notes/v1/books/b/notes/n:archive"] = {}
    args = {"book_id": "b", "note_id": "n", "reason": "old"}
    assert (await call_once(notes(google), "notes_books_notes_archive", args)).response == {}
    assert google.last.body == {"reason": "old"}


async def test_a_path_of_one_variable_is_written_as_its_flat_path(google: GoogleServer) -> None:
    google.answers["GET /notes/v1/books/b/notes/n"] = {"id": "n"}
    args = {"books_id": "b", "notes_id": "n", "name": "books/b/notes/n"}
    assert (await call_once(notes(google), "notes_books_notes_get", args)).response == {"id": "n"}


async def test_a_filter_and_a_prefix_choose_and_name_the_tools(google: GoogleServer) -> None:
    toolset = notes(google, tool_filter=["notes_books_list"], tool_name_prefix="my")
    assert list(await offered(toolset)) == ["my_notes_books_list"]
    toolset = notes(google)
    toolset.set_tool_filter(lambda tool, _: tool.name.endswith("_delete"))
    assert list(await offered(toolset)) == ["notes_books_notes_delete"]


async def test_headers_are_sent_with_each_request(google: GoogleServer) -> None:
    google.answers[BOOKS] = {}
    toolset = notes(google, additional_headers={"X-Goog-User-Project": "p-9"})
    await call_once(toolset, "notes_books_list", {"user_id": "ada"})
    assert google.last.headers["x-goog-user-project"] == "p-9"


async def test_a_user_logs_in_at_google_and_the_call_is_made(
    google: GoogleServer, provider: AuthorizationServer, tmp_path: Path
) -> None:
    google.answers[BOOKS] = {"items": []}
    google.tokens = lambda token: provider.tokens.get(token, 0) > time.time()
    login = AuthScheme(
        type="openIdConnect",
        authorization_endpoint=f"{provider.url}/authorize?access_type=offline",
        token_endpoint=f"{provider.url}/token",
        scopes=["https://www.googleapis.com/auth/notes"],
    )
    toolset = notes(google, service_account=None, client_id=CLIENT_ID, client_secret=CLIENT_SECRET, auth_scheme=login)
    listing = call("notes_books_list", user_id="ada")
    agent = LlmAgent(name="desk", model=ScriptedModel([listing, "None."]), tools=[toolset])

    async with serve(agent, tmp_path) as server:
        await server.new_session("desk")
        events = await say(server, "Which books do I have?")
        (request,) = requests_of(events)
        assert responses_of(events) == [PENDING]
        assert CLIENT_SECRET not in json.dumps(events)
        asked = httpx.URL(request["args"]["authConfig"]["exchangedAuthCredential"]["oauth2"]["authUri"]).params
        assert asked["scope"] == "https://www.googleapis.com/auth/notes"
        assert (asked["access_type"], asked["prompt"]) == ("offline", "consent")
        assert responses_of(await say(server, await consent(request))) == [{"items": []}]
    await toolset.close()


async def test_a_login_asks_for_the_first_scope_of_the_api_and_for_more(google: GoogleServer) -> None:
    more = ["https://www.googleapis.com/auth/drive"]
    toolset = notes(google, service_account=None, client_id="c", client_secret="s", additional_scopes=more)
    made = await call_once(toolset, "notes_books_list", {"user_id": "ada"})
    (config,) = made.actions.requested_auth_configs.values()
    assert config["authScheme"]["scopes"] == ["https://www.googleapis.com/auth/notes", *more]
    assert config["authScheme"]["tokenEndpoint"] == "https://oauth2.googleapis.com/token"
    assert config["rawAuthCredential"]["oauth2"]["clientId"] == "c"


async def test_the_account_may_be_set_after_the_tools_were_listed(google: GoogleServer) -> None:
    google.answers[BOOKS] = {"items": []}
    toolset = notes(google, service_account=None)
    await toolset.get_tools()
    toolset.configure_auth("c", "s")
    await toolset.get_tools()
    toolset.configure_sa_auth(ServiceAccount(service_account_credential=google.service_account()))
    assert (await call_once(toolset, "notes_books_list", {"user_id": "ada"})).response == {"items": []}
    assert google.calls().count(DISCOVERY) == 1


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "PERMISSION_DENIED", "The caller does not have permission"),
        (404, "NOT_FOUND", "Requested entity was not found."),
        (429, "RESOURCE_EXHAUSTED", "Quota exceeded for quota metric 'Queries'"),
        (500, "INTERNAL", "Internal error encountered."),
    ],
)
async def test_a_refusal_of_the_api_is_told_to_the_model(
    google: GoogleServer, status: int, code: str, message: str
) -> None:
    google.answers[BOOKS] = refusal(status, code, message)
    made = await call_once(notes(google), "notes_books_list", {"user_id": "ada"})
    error = made.response["error"]
    assert f"failed with status {status}" in error
    assert message in error
    assert "Traceback" not in error
    assert "sa-token" not in error


async def test_a_document_that_cannot_be_fetched_is_fetched_again_by_the_next_run(google: GoogleServer) -> None:
    toolset = notes(google)
    google.answers[DISCOVERY] = refusal(503, "UNAVAILABLE", "Try later")
    with pytest.raises(ToolError, match=r"notes v1 at http.* can't be read: it answered with status 503"):
        await toolset.get_tools()
    google.answers[DISCOVERY] = PlainTextResponse("<html>")
    with pytest.raises(AgentConfigError, match="not valid JSON"):
        await toolset.get_tools()
    serve_notes(google)
    assert len(await toolset.get_tools()) == len(BY_ADK)
    await toolset.close()


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"rootUrl": 5},
        {"rootUrl": "https://x.test/", "resources": []},
        {"rootUrl": "https://x.test/", "schemas": {"A": 1}},
    ],
)
def test_a_document_of_another_kind_is_refused(document: Json) -> None:
    with pytest.raises(AgentConfigError, match="discovery document"):
        to_openapi(document)


async def test_the_document_of_a_newer_api_is_found_on_its_own_host(google: GoogleServer) -> None:
    asked: list[str] = []

    class Google(httpx.AsyncBaseTransport):
        """Passes the requests for Google's hosts to the test's server."""

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            asked.append(str(request.url))
            if request.url.host == "www.googleapis.com":
                return httpx.Response(404)
            document = {**NOTES, "rootUrl": "https://notes.googleapis.com/"}
            return httpx.Response(200, json=document)

    toolset = GoogleApiToolset("notes", "v1", httpx_client_factory=lambda: httpx.AsyncClient(transport=Google()))
    assert len(await toolset.get_tools()) == len(BY_ADK)
    await toolset.close()
    assert asked == [
        "https://www.googleapis.com/discovery/v1/apis/notes/v1/rest",
        "https://notes.googleapis.com/$discovery/rest?version=v1",
    ]


@pytest.mark.parametrize(
    ("name", "api", "version"),
    [
        ("CalendarToolset", "calendar", "v3"),
        ("DocsToolset", "docs", "v1"),
        ("GmailToolset", "gmail", "v1"),
        ("SheetsToolset", "sheets", "v4"),
        ("SlidesToolset", "slides", "v1"),
        ("YoutubeToolset", "youtube", "v3"),
    ],
)
async def test_the_toolsets_of_known_apis_read_their_documents(
    google: GoogleServer, name: str, api: str, version: str
) -> None:
    discovery = f"GET /discovery/v1/apis/{api}/{version}/rest"
    google.answers[discovery] = {**NOTES, "rootUrl": f"{google.url}/"}
    toolset = getattr(greenroom, name)(
        "client-id",
        "client-secret",
        ["notes_books_list"],
        tool_name_prefix="my",
        discovery_url=f"{google.url}/discovery/v1/apis/{{api}}/{{apiVersion}}/rest",
        allow_private_network_access=True,
    )
    assert list(await offered(toolset)) == ["my_notes_books_list"]
    assert google.calls() == [discovery]


def test_bigquery_has_a_toolset_of_its_whole_api() -> None:
    from greenroom.tools.google_api.toolsets import BigQueryToolset

    toolset = BigQueryToolset("id", "secret", tool_filter=["bigquery_datasets_list"])
    assert (toolset.api_name, toolset.api_version) == ("bigquery", "v2")
