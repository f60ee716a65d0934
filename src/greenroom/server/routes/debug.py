"""Handlers of the debug endpoints: app trees, graphs and traces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any, cast

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.describe import shown_instruction, tools_of
from greenroom.apps.graph import graph_json, to_dot
from greenroom.apps.graph import workflows_below as workflows
from greenroom.errors import AgentNotFound, TraceNotFound
from greenroom.models.model import BaseLlm
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record
from greenroom.records.event import Event
from greenroom.server.app_logs import ListLogsResponse
from greenroom.server.endless_streams import STOPPING
from greenroom.server.replies import AnyReply, Reply, StreamReply
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import last_seen, wants_stream
from greenroom.server.sse import KEEP_ALIVE

MAX_LINES = 1000
FOLLOW_SECONDS = 0.5
"""Interval between two looks for new lines of a log, in memory."""


class GraphResponse(Record, kw_only=True):
    """A graph of an app's agents."""

    dot_src: str | None = None
    """DOT text; omitted for an unknown event."""


async def app_tree(context: RequestContext) -> AnyReply:
    """The app in ADK's serialised form, in snake case."""
    name = context.path["app_name"]
    app = await context.apps.load(name)
    tree: JsonObject = {"name": app.name, "root_agent": await _agent(app.root_agent)}
    if app.plugins:
        tree["plugins"] = [{"name": plugin.name} for plugin in app.plugins]
    readme = await context.apps.readme(name)
    if readme is not None:
        tree["readme"] = readme
    return Reply(value=tree)


async def app_graph(context: RequestContext) -> AnyReply:
    app = await context.apps.load(context.path["app_name"])
    return Reply(value=await _drawn(context, app.root_agent))


async def app_graphs(context: RequestContext) -> AnyReply:
    """DOT texts of the root and of its workflow agents, by path. The root's path is empty; other
    paths begin at its children. `node` selects one of them."""
    root = (await context.apps.load(context.path["app_name"])).root_agent
    agents = workflows(root)
    node: str | None = context.query["node"]

    if node is not None:
        agent = (
            agents.get(node) or agents.get(node.removeprefix(f"{root.name}/")) or (root if node == root.name else None)
        )
        if agent is None:
            raise AgentNotFound(node)
        agents = {node: agent}

    return Reply(value={path: await _drawn(context, agent) for path, agent in agents.items()})


async def event_graph(context: RequestContext) -> AnyReply:
    """The app's graph, with the agents and tools of the event highlighted."""
    app = await context.apps.load(context.path["app_name"])
    session = await context.find_session(context.session_key)
    event_id = context.path["event_id"]
    event = next((event for event in session.events if event.id == event_id), None)
    if event is None:
        return Reply(value=GraphResponse())
    return Reply(value=await _drawn(context, app.root_agent, event))


async def _drawn(context: RequestContext, root: BaseAgent, event: Event | None = None) -> GraphResponse:
    return GraphResponse(dot_src=await to_dot(root, is_dark=context.query["dark_mode"], event=event))


async def _agent(agent: BaseAgent) -> JsonObject:
    node: JsonObject = {"name": agent.name, "description": agent.description}
    if isinstance(agent, LlmAgent):
        model = agent.model
        node |= {
            "model": model.model if isinstance(model, BaseLlm) else model,
            "instruction": shown_instruction(agent.instruction),
            "global_instruction": shown_instruction(agent.global_instruction),
            "tools": [{"name": tool.name, "type": "tool"} for tool in await tools_of(agent)],
            "disallow_transfer_to_parent": agent.disallow_transfer_to_parent,
            "disallow_transfer_to_peers": agent.disallow_transfer_to_peers,
            "include_contents": agent.include_contents,
        }

    if agent.is_graph:
        node["graph"] = graph_json(cast("Any", agent))
    node["sub_agents"] = [await _agent(child) for child in agent.sub_agents]
    return node


async def app_logs(context: RequestContext) -> AnyReply:
    """Returns lines of an app's log: the newest ones, or a stream that continues with new ones."""
    await context.apps.check_exists(context.path["app_name"])
    after = last_seen(context) or 0
    limit = min(context.query["limit"] or MAX_LINES, MAX_LINES)
    if wants_stream(context):
        return StreamReply(
            pieces=_follow_logs(context, after, limit),
            close=lambda: None,
            is_endless=True,
            when_server_stops=lambda: STOPPING,
        )
    return Reply(value=ListLogsResponse(lines=context.logs_after(after, limit=limit)))


async def _follow_logs(context: RequestContext, after: int, limit: int) -> AsyncGenerator[bytes]:
    idle_since = time.monotonic()
    yield KEEP_ALIVE
    while True:
        if lines := context.logs_after(after, limit=limit):
            after = lines[-1].number
            idle_since = time.monotonic()
            yield b"".join(b"id: %d\ndata: %b\n\n" % (line.number, wire.encode(line)) for line in lines)
        elif time.monotonic() - idle_since > context.settings.keep_alive_seconds:
            idle_since = time.monotonic()
            yield KEEP_ALIVE
        await asyncio.sleep(FOLLOW_SECONDS)


async def event_trace(context: RequestContext) -> AnyReply:
    """The span's attributes, `trace_id` and `span_id` as one flat object."""
    span = await context.traces.of_event(context.path["event_id"], app_name=context.path.get("app_name"))
    if span is None:
        raise TraceNotFound
    return Reply(value=span.flat())


async def session_trace(context: RequestContext) -> AnyReply:
    spans = await context.traces.of_session(context.path["session_id"], app_name=context.path.get("app_name"))
    return Reply(value=spans)
