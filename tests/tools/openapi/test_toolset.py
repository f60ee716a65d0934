from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, MissingExtra, ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.auth import token_to_scheme_credential
from greenroom.server.application import create_app
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.openapi.toolset import OpenAPIToolset
from tests.agents.talk import Talk, call, lines_of
from tests.server.agents import echo
from tests.server.serving import serving
from tests.tools.one_call import offered
from tests.tools.openapi.conftest import Api

PETS: dict[str, Any] = {
    "/pets": {
        "get": {
            "operationId": "listPets",
            "description": "Lists pets.",
            "parameters": [{"name": "maxAge", "in": "query", "schema": {"type": "integer"}}],
        },
        "post": {"operationId": "addPet", "summary": "Adds a pet."},
    },
    "/pets/{petId}": {"delete": {"operationId": "dropPet"}},
}


def document(**more: Any) -> dict[str, Any]:
    return {"openapi": "3.0.3", "servers": [{"url": "https://api.test"}], "paths": PETS, **more}


async def names(toolset: OpenAPIToolset) -> list[str]:
    return [tool.name for tool in await toolset.get_tools()]


async def test_a_document_is_a_dict_a_text_or_a_file(tmp_path: Path) -> None:
    text = json.dumps(document())
    file = tmp_path / "api.json"
    file.write_text(text)
    for toolset in (
        OpenAPIToolset(spec_dict=document()),
        OpenAPIToolset(spec_str=text),
        OpenAPIToolset(spec_path=file),
    ):
        assert await names(toolset) == ["list_pets", "add_pet", "drop_pet"]


async def test_a_document_may_be_yaml(tmp_path: Path) -> None:
    text = "openapi: 3.1.0\nservers: [{url: 'https://api.test'}]\npaths: {/pets: {get: {operationId: listPets}}}\n"
    file = tmp_path / "api.yaml"
    file.write_text(text)
    assert await names(OpenAPIToolset(spec_str=text, spec_str_type="yaml")) == ["list_pets"]
    assert await names(OpenAPIToolset(spec_path=file)) == ["list_pets"]


@pytest.mark.parametrize("given", [{}, {"spec_dict": {}, "spec_url": "https://a.test"}])
def test_one_document_is_needed(given: dict[str, Any]) -> None:
    with pytest.raises(AgentConfigError, match="one of"):
        OpenAPIToolset(**given)


def test_a_bad_document_is_refused_at_once() -> None:
    with pytest.raises(AgentConfigError, match="not valid JSON"):
        OpenAPIToolset(spec_str="{")


async def test_a_document_at_a_url_is_read_when_it_is_needed(api: Api, tool_context: ToolContext) -> None:
    toolset = OpenAPIToolset(spec_url=f"{api.url}/docs/openapi.json", allow_private_network_access=True)
    assert api.seen == []
    assert toolset.get_tool("list_pets") is None
    api.answers = [JSONResponse({"openapi": "3.1.0", "paths": PETS})]
    assert await names(toolset) == ["list_pets", "add_pet", "drop_pet"]
    await names(toolset)
    assert len(api.seen) == 1

    tool = toolset.get_tool("list_pets")
    assert tool is not None
    await tool.run_async(args={"max_age": 3}, tool_context=tool_context)
    assert (api.last.path, api.last.query) == ("/pets", "maxAge=3")
    await toolset.close()


async def test_a_document_that_does_not_answer_is_asked_for_again(api: Api) -> None:
    toolset = OpenAPIToolset(spec_url=f"{api.url}/openapi.json", allow_private_network_access=True)
    api.answers = [Response(status_code=503), JSONResponse({"openapi": "3.1.0", "paths": PETS})]
    with pytest.raises(ToolError, match="status 503"):
        await toolset.get_tools()
    assert len(await toolset.get_tools()) == 3
    await toolset.close()


async def test_a_yaml_document_may_be_at_a_url(api: Api) -> None:
    toolset = OpenAPIToolset(spec_url=f"{api.url}/openapi", allow_private_network_access=True)
    api.answers = [PlainTextResponse("openapi: 3.1.0\npaths: {/a: {get: {}}}")]
    assert await names(toolset) == ["a_get"]
    await toolset.close()


async def test_a_document_in_a_private_network_is_not_read_unless_that_is_allowed(api: Api) -> None:
    toolset = OpenAPIToolset(spec_url=f"{api.url}/openapi.json")
    with pytest.raises(ToolError, match="not a public address"):
        await toolset.get_tools()
    assert api.seen == []


@pytest.mark.parametrize("prefix", [None, "shop"])
async def test_the_filter_knows_names_without_their_prefix(prefix: str | None) -> None:
    shown = ["list_pets"] if prefix is None else ["shop_list_pets"]
    for tool_filter in (["list_pets"], lambda tool, context: tool.name == "list_pets"):  # pyright: ignore[reportUnknownLambdaType]
        toolset = OpenAPIToolset(spec_dict=document(), tool_filter=tool_filter, tool_name_prefix=prefix)
        assert list(await offered(toolset)) == shown
    assert len(await offered(OpenAPIToolset(spec_dict=document(), tool_filter=[]))) == 3


async def test_a_prefix_is_declared_too() -> None:
    toolset = OpenAPIToolset(spec_dict=document(), tool_name_prefix="shop")
    assert toolset.get_tool("shop_list_pets") is toolset.get_tool("list_pets") is not None
    declaration = (await offered(toolset))["shop_list_pets"]._get_declaration()
    assert declaration is not None
    assert (declaration.name, declaration.description) == ("shop_list_pets", "Lists pets.")
    assert declaration.json_schema() == {
        "type": "object",
        "title": "listPets_Arguments",
        "properties": {"max_age": {"type": "integer"}},
    }


async def test_a_credential_given_for_all_tools_is_asked_for_by_calls_and_not_to_list_them() -> None:
    scheme, credential = token_to_scheme_credential("apikey", "header", "X-Key", "k-1")
    as_map = {"type": "apiKey", "in": "header", "name": "X-Key"}
    toolset = OpenAPIToolset(
        spec_dict=document(), auth_scheme=as_map, auth_credential=credential, credential_key="mine"
    )
    assert toolset.get_auth_config() is None
    tool = toolset.get_tool("list_pets")
    assert tool is not None
    config = tool.auth_config
    assert config is not None
    assert (config.auth_scheme, config.raw_auth_credential, config.credential_key) == (scheme, credential, "mine")


async def test_closing_closes_the_connections(api: Api, tool_context: ToolContext) -> None:
    clients: list[httpx.AsyncClient] = []

    def factory() -> httpx.AsyncClient:
        clients.append(httpx.AsyncClient())
        return clients[-1]

    toolset = api.toolset(PETS, httpx_client_factory=factory)
    tool = toolset.get_tool("list_pets")
    assert tool is not None
    for number in (1, 2):
        await tool.run_async(args={}, tool_context=tool_context)
        assert [client.is_closed for client in clients] == [True] * (number - 1) + [False]
        await toolset.close()
        assert [client.is_closed for client in clients] == [True] * number


def test_a_toolset_works_in_one_event_loop_after_another(tool_context: ToolContext) -> None:
    async def use(toolset: OpenAPIToolset) -> Any:
        tool = toolset.get_tool("list_pets")
        assert tool is not None
        try:
            return await tool.run_async(args={}, tool_context=tool_context)
        finally:
            await toolset.close()

    def factory() -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(lambda request: httpx.Response(200, json={"ok": 1})))

    toolset = OpenAPIToolset(spec_dict=document(), httpx_client_factory=factory)
    assert [asyncio.run(use(toolset)) for _ in range(2)] == [{"ok": 1}] * 2


async def test_a_factory_makes_the_client_but_private_addresses_stay_refused(tool_context: ToolContext) -> None:
    asked: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(200, json={})

    def factory() -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(answer))

    for base_url, is_called in (("https://api.test", True), ("http://169.254.169.254", False)):
        toolset = OpenAPIToolset(spec_dict=document(), base_url=base_url, httpx_client_factory=factory)
        tool = toolset.get_tool("list_pets")
        assert tool is not None
        await tool.run_async(args={}, tool_context=tool_context)
        assert bool(asked) == is_called
        asked.clear()
        await toolset.close()


def test_certificates_are_checked_as_configured(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OpenAPIToolset(spec_dict=document(), ssl_verify=str(tmp_path / "none.pem"))._client._new_client()
    default = OpenAPIToolset(spec_dict=document())._client._verification()
    assert isinstance(default, ssl.SSLContext)
    assert default.verify_mode is ssl.CERT_REQUIRED
    assert OpenAPIToolset(spec_dict=document(), ssl_verify=False)._client._verification() is False


def test_without_httpx_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(MissingExtra, match="openapi"):
        OpenAPIToolset(spec_dict=document())


async def test_a_model_gets_what_the_api_answers(api: Api) -> None:
    api.answers = [JSONResponse([{"name": "Rex"}]), JSONResponse({"detail": "no"}, status_code=422)]
    model = ScriptedModel([call("list_pets", "c1", max_age=3), call("add_pet", "c2"), call("drop_pet", "c3"), "Done."])
    talk = Talk(LlmAgent(name="keeper", model=model, tools=[api.toolset(PETS)]))
    lines = lines_of(await talk.say("hi"))
    assert lines[:3] == [
        "keeper: list_pets(max_age=3)",
        "keeper: list_pets -> {'result': [{'name': 'Rex'}]}",
        "keeper: add_pet()",
    ]
    assert "failed with status 422" in lines[3]
    assert "mandatory arguments are missing:\\npet_id" in lines[5]
    assert lines[-1] == "keeper: Done."
    assert [d.name for d in model.requests[0].function_declarations()] == ["list_pets", "add_pet", "drop_pet"]


async def test_a_call_that_waits_for_a_credential_asks_in_its_event(api: Api) -> None:
    scheme, _ = token_to_scheme_credential("apikey", "header", "X-Key")
    model = ScriptedModel([call("list_pets", "c1"), "Please log in."])
    talk = Talk(LlmAgent(name="keeper", model=model, tools=[api.toolset(PETS, auth_scheme=scheme)]))
    await talk.say("hi")
    (asked,) = [event.actions.requested_auth_configs for event in await talk.log() if event.get_function_responses()]
    assert asked["c1"]["authScheme"] == {"type": "apiKey", "in": "header", "name": "X-Key"}
    assert api.seen == []


async def test_our_own_server_can_be_driven_by_its_own_document() -> None:
    async with serving(create_app(agents=(echo(),))) as server:
        toolset = OpenAPIToolset(spec_url=f"{server.url}/openapi.json", allow_private_network_access=True)
        tools = {tool.name: tool for tool in await toolset.get_tools()}
        root = (await server.client.get("/openapi.json")).json()
        operations = [item for path in root["paths"].values() for item in path.values() if isinstance(item, dict)]
        assert len(tools) == len(operations)
        for tool in tools.values():
            declaration = tool._get_declaration()
            assert declaration is not None
            schema = declaration.json_schema()
            references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(schema)))
            assert references == {f"#/$defs/{name}" for name in schema.get("$defs", {})}

        place = {"app_name": "echo", "user_id": "ann"}
        message = {"role": "user", "parts": [{"text": "hello"}]}
        script: list[Any] = [
            call("create_session", "c1", **place, session_id="s/1", state={"colour": "red"}),
            call("run", "c2", **place, session_id="s/1", new_message=message),
            call("get_session", "c3", **place, session_id="s/1"),
            call("get_session", "c4", **place, session_id="none"),
            "Done.",
        ]
        talk = Talk(LlmAgent(name="driver", model=ScriptedModel(script), tools=[toolset]))
        events = await talk.say("go")
        answers = {r.id: r.response or {} for event in events for r in event.get_function_responses()}
        assert (answers["c1"]["id"], answers["c1"]["state"]) == ("s/1", {"colour": "red"})
        said = [part.get("text") for event in answers["c2"]["result"] for part in event["content"]["parts"]]
        assert said[-1] == "You said hello"
        assert len(answers["c3"]["events"]) == 2
        assert "failed with status 404" in answers["c4"]["error"]
        await toolset.close()
