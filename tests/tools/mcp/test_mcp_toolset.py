"""Tools of real MCP servers, over each transport."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, MissingExtra
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.auth import AuthCredential, AuthCredentialTypes, AuthScheme, HttpAuth, HttpCredentials
from greenroom.server.application import create_app
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.mcp.toolset import (
    McpToolset,
    StdioConnectionParams,
    StdioServerParameters,
    StreamableHTTPConnectionParams,
)
from greenroom.tools.tool import BaseTool
from tests.agents.human_input.approvals import decide, request_ids
from tests.agents.talk import Talk, call, shown
from tests.server.serving import serving
from tests.tools.mcp.bookshop import HERE
from tests.tools.mcp.conftest import Log, MakeToolset, each_transport, stdio

pytestmark = pytest.mark.slow


def asking(toolset: Any, *turns: Any) -> LlmAgent:
    return LlmAgent(name="a", model=ScriptedModel([*turns, "done"]), tools=[toolset])


async def result_of(toolset: Any, name: str, **args: Any) -> Any:
    """Results of one call in a run."""
    await toolset.get_tools()  # a process takes its time to start
    events = await Talk(asking(toolset, call(name, "c1", **args))).say("go")
    (response,) = events[1].get_function_responses()
    return response.response


def text_of(result: Any) -> str:
    return result["content"][0]["text"]


# what a call gives


@each_transport
async def test_a_run_calls_the_servers_tools(make: MakeToolset) -> None:
    assert await result_of(make(), "buy", title="Emma") == {
        "content": [{"type": "text", "text": "bought Emma"}],
        "isError": False,
        "structuredContent": {"result": "bought Emma"},
    }


async def test_the_command_may_be_a_dict(log: Log) -> None:
    command: Any = {"command": sys.executable, "args": [str(HERE)], "env": {"BOOKSHOP_LOG": str(log.path)}}
    toolset = McpToolset(connection_params=StdioConnectionParams(server_params=command))
    try:
        assert text_of(await result_of(toolset, "buy", title="Emma")) == "bought Emma"
    finally:
        await toolset.close()


async def test_content_of_every_kind_comes_without_its_bytes(make: MakeToolset) -> None:
    result = await result_of(make(), "cover")
    kept = [{name: value for name, value in block.items() if name != "_meta"} for block in result["content"]]
    assert kept == [
        {"type": "text", "text": "the cover"},
        {"type": "image", "mimeType": "image/png"},
        {"type": "audio", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "shop://blurb", "text": "a blurb", "mimeType": "text/plain"}},
        {"type": "resource_link", "name": "blurb", "uri": "shop://blurb"},
    ]


async def test_an_error_of_the_tool_is_reported_to_the_model(make: MakeToolset) -> None:
    result = await result_of(make(), "fail")
    assert result["isError"] is True
    assert "sold out" in text_of(result)


async def test_arguments_that_the_server_refuses_are_reported_to_the_model(make: MakeToolset) -> None:
    result = await result_of(make(), "count_books", minimum="many")
    assert "author" in str(result)


@each_transport
async def test_progress_is_reported(make: MakeToolset) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    await result_of(make(progress_callback=progress), "read_aloud", pages=2)
    assert heard == [(1, 2, "page 1"), (2, 2, "page 2")]


async def test_a_factory_makes_a_progress_callback_for_each_call(make: MakeToolset) -> None:
    heard: list[str] = []

    def factory(*, tool_name: str, callback_context: Any, **_: Any) -> Any:
        async def progress(progress: float, total: float | None, message: str | None) -> None:
            heard.append(f"{tool_name} of {callback_context.agent_name}: {message}")

        return progress

    await result_of(make(progress_callback=factory), "read_aloud", pages=1)
    assert heard == ["read_aloud of a: page 1"]


async def test_a_users_interface_and_the_sources_of_an_answer_come_with_the_result(make: MakeToolset) -> None:
    toolset = make(propagate_grounding_metadata=True)
    await toolset.get_tools()
    _, shown, last = await Talk(asking(toolset, call("window", "c1"))).say("go")
    payload = {"resource_uri": "ui://shop/window", "tool": "window"}
    assert shown.actions.render_ui_widgets == [{"id": "c1", "provider": "mcp", "payload": payload}]
    (response,) = shown.get_function_responses()
    sources = {"groundingMetadata": {"sources": ["shelf"]}}
    assert (response.response or {})["meta"] == sources
    assert last.grounding_metadata == sources["groundingMetadata"]
    plain = make()
    await plain.get_tools()
    events = await Talk(asking(plain, call("window", "c1"))).say("go")
    assert events[-1].grounding_metadata is None


async def test_a_call_is_part_of_the_runs_trace(make: MakeToolset) -> None:
    toolset = make()
    await toolset.get_tools()
    agent = asking(toolset, call("trace", "c1"))
    async with serving(create_app(agents=[agent])) as server:
        await server.new_session("a")
        events = (await server.run("a")).json()
        spans = (await server.client.get("/dev/apps/a/debug/trace/session/s-1")).json()
    said = text_of(events[1]["content"]["parts"][0]["functionResponse"]["response"])
    (tool_span,) = [span for span in spans if span["name"] == "execute_tool trace"]
    assert f"{tool_span['trace_id']}-{tool_span['span_id']}" in said


# what the model is shown


async def test_tools_are_declared_by_name_and_reserved_names_left_out(make: MakeToolset) -> None:
    tools = await make().get_tools()
    names = [tool.name for tool in tools]
    assert names == sorted(names)
    assert {"buy", "count_books"} < set(names)
    assert "transfer_to_agent" not in names
    declared = next(tool for tool in tools if tool.name == "count_books")._get_declaration()
    assert declared is not None
    schema = declared.json_schema()
    assert schema["required"] == ["author"]
    assert schema["properties"]["minimum"]["type"] == "integer"


async def test_descriptions_are_fenced_and_the_model_learns_what_that_means(make: MakeToolset) -> None:
    toolset = make(tool_filter=["buy", "fail"])
    await toolset.get_tools()
    agent = asking(toolset)
    await Talk(agent).say("go")
    (request,) = agent.model.requests  # type: ignore[union-attr]
    texts = [declaration.description for declaration in request.function_declarations()]
    fence = "<<<BEGIN_UNTRUSTED_TOOL_DESCRIPTION>>>\n{}\n<<<END_UNTRUSTED_TOOL_DESCRIPTION>>>"
    assert texts == [fence.format("Buys a book."), fence.format("Always fails.")]
    assert request.config.system_text().count("were written by others") == 1


async def test_a_filter_goes_by_the_servers_names_and_a_prefix_is_put_before_them(make: MakeToolset) -> None:
    toolset = make(tool_filter=["buy"], tool_name_prefix="shop")
    assert [tool.name for tool in await toolset.get_tools_with_prefix()] == ["shop_buy"]
    assert text_of(await result_of(toolset, "shop_buy", title="Emma")) == "bought Emma"


async def test_a_filter_may_be_a_function(make: MakeToolset) -> None:
    def short(tool: BaseTool, _: ReadonlyContext | None) -> bool:
        return len(tool.name) < 4

    assert [tool.name for tool in await make(tool_filter=short).get_tools()] == ["buy"]


async def test_only_tools_that_change_nothing_are_called_again_after_a_crash(make: MakeToolset) -> None:
    again = {tool.name: tool.on_interrupt for tool in await make(tool_filter=["buy", "count_books"]).get_tools()}
    assert again == {"buy": "report", "count_books": "retry"}


async def test_resources_are_listed_and_shown_when_the_model_asks(make: MakeToolset) -> None:
    toolset = make(use_mcp_resources=True, tool_filter=["buy"])
    await toolset.get_tools()
    agent = asking(toolset, call("load_mcp_resource", resource_names=["hours", "gone"]))
    await Talk(agent).say("go")
    first, second = agent.model.requests  # type: ignore[union-attr]
    assert [declaration.name for declaration in first.function_declarations()] == ["buy", "load_mcp_resource"]
    assert "- hours\n- logo" in first.config.system_text()
    assert shown(second)[-2:] == ["user: Resource hours is:", "user: nine to five"]


async def test_resources_can_be_read_by_programs(make: MakeToolset) -> None:
    toolset = make()
    assert await toolset.list_resources() == ["hours", "logo"]
    (logo,) = await toolset.read_resource("logo")
    assert logo.inline_data.data == b"png"


# listing


async def test_the_list_is_read_once_in_a_run_and_again_in_the_next(make: MakeToolset) -> None:
    toolset = make()
    await toolset.get_tools()
    agent = asking(toolset, call("buy", "c1", title="a"), call("open_cellar", "c2"), "done")
    talk = Talk(agent)
    await talk.say("go")
    first, second, _ = agent.model.requests  # type: ignore[union-attr]
    assert all(tool is second.tools_dict[name] for name, tool in first.tools_dict.items())
    await talk.say("again")
    assert "cellar" in agent.model.requests[-1].tools_dict  # type: ignore[union-attr]


async def test_a_server_that_says_that_the_list_changed_is_asked_again() -> None:
    server = StdioServerParameters(sys.executable, [str(HERE.with_name("old_server.py"))])
    toolset = McpToolset(connection_params=server, tool_list_cache_ttl_seconds=60)
    try:
        assert [tool.name for tool in await toolset.get_tools()] == ["change"]
        await result_of(toolset, "change")
        assert [tool.name for tool in await toolset.get_tools()] == ["change", "extra"]
    finally:
        await toolset.close()


async def test_the_list_is_kept_for_as_long_as_asked(make: MakeToolset) -> None:
    toolset = make(tool_list_cache_ttl_seconds=60)
    first = await toolset.get_tools()
    assert await toolset.get_tools() == first
    short = make(tool_list_cache_ttl_seconds=1e-9)
    assert (await short.get_tools())[0] is not (await short.get_tools())[0]


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_time_to_keep_the_list_must_be_positive(seconds: float) -> None:
    with pytest.raises(AgentConfigError):
        McpToolset(connection_params=StdioServerParameters("x"), tool_list_cache_ttl_seconds=seconds)


# approval


async def test_a_person_is_asked_before_a_tool_runs(make: MakeToolset, log: Log) -> None:
    toolset = make(require_confirmation=True)
    await toolset.get_tools()
    talk = Talk(asking(toolset, call("buy", "c1", title="Emma")))
    (request,) = request_ids(await talk.say("go"))
    assert "buy Emma" not in log.lines()
    events = await talk.say(decide(request))
    assert text_of(events[0].get_function_responses()[0].response) == "bought Emma"
    assert log.lines().count("buy Emma") == 1


async def test_a_predicate_decides_who_is_asked_about(make: MakeToolset) -> None:
    toolset = make(require_confirmation=lambda title: title == "Ulysses")
    assert text_of(await result_of(toolset, "buy", title="Emma")) == "bought Emma"
    talk = Talk(asking(toolset, call("buy", "c1", title="Ulysses")))
    (request,) = request_ids(await talk.say("go"))
    events = await talk.say(decide(request, confirmed=False))
    assert "error" in events[0].get_function_responses()[0].response  # type: ignore[operator]


# who calls


async def test_each_user_has_a_session_with_the_headers_of_that_user(make: MakeToolset, log: Log) -> None:
    async def headers(context: ReadonlyContext) -> dict[str, str]:
        return {"X-User": str(context.state["who"])}

    toolset = make(header_provider=headers)

    async def asks(who: str) -> Any:
        talk = Talk(asking(toolset, call("who_calls", "c1")), state={"who": who})
        return text_of((await talk.say("go"))[1].get_function_responses()[0].response)

    assert await asks("ann") == "ann None"
    assert await asks("bob") == "bob None"
    assert log.sessions() == 2


async def test_a_credential_goes_into_a_header_and_before_others_of_its_name(make: MakeToolset) -> None:
    toolset = make(
        auth_scheme=AuthScheme(type="http", scheme="bearer"),
        auth_credential=AuthCredential(
            auth_type=AuthCredentialTypes.HTTP, http=HttpAuth(scheme="bearer", credentials=HttpCredentials(token="t"))
        ),  # type: ignore[arg-type]
        header_provider=lambda _: {"authorization": "mine", "x-user": "ann"},
    )
    assert text_of(await result_of(toolset, "who_calls")) == "ann Bearer t"
    assert toolset.get_auth_config() is not None


def test_api_keys_are_sent_in_headers_only() -> None:
    scheme = AuthScheme(type="apiKey", in_="query", name="key")
    params = StreamableHTTPConnectionParams("http://127.0.0.1:1/mcp")
    with pytest.raises(AgentConfigError, match="headers only"):
        McpToolset(connection_params=params, auth_scheme=scheme)


# sessions


@each_transport
async def test_calls_side_by_side_share_one_session(make: MakeToolset, log: Log) -> None:
    toolset = make()
    await asyncio.gather(toolset.get_tools(), toolset.get_tools())
    await Talk(asking(toolset, [call("buy", f"c{n}", title=str(n)) for n in range(5)])).say("go")
    assert log.sessions() == 1


@each_transport
async def test_closing_leaves_no_task_behind_and_it_can_be_used_again(make: MakeToolset) -> None:
    before = asyncio.all_tasks()
    toolset = make()
    await toolset.get_tools()
    await toolset.close()
    assert {task.get_name() for task in asyncio.all_tasks() - before if "MCP server" in task.get_name()} == set()
    assert await toolset.get_tools() != []


def test_it_can_be_used_from_one_event_loop_after_another(log: Log) -> None:
    toolset = McpToolset(connection_params=stdio(log))

    async def use() -> int:
        count = len(await toolset.get_tools())
        await toolset.close()
        return count

    assert asyncio.run(use()) == asyncio.run(use())


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r"greenroom\[mcp\]"):
        McpToolset(connection_params=StdioServerParameters("x"))


async def test_a_call_can_be_made_without_a_run(make: MakeToolset, tool_context: ToolContext) -> None:
    (tool,) = await make(tool_filter=["buy"]).get_tools()
    assert text_of(await tool.run_async(args={"title": "Emma"}, tool_context=tool_context)) == "bought Emma"
