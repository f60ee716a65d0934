"""Transfer of a conversation to another agent of the tree.

Source: ADK's agent transfer. An agent may transfer to its children, to its parent, and to its
parent's other children, as far as its two flags allow; workflow agents are no targets upwards.
Beyond ADK, it may ask to get the control back: it continues in the same run when the other agent
has answered, and the next message comes to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.agents.agent import BaseAgent
from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.log.progress import RETURN, TRANSFER_TOOL, asks_for_return
from greenroom.log.state import events_of_run, log_state_of
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.tool import BaseTool

_WHEN_TORETURN = (
    "True if the control shall come back to you when that agent has answered, because you are not done then."
)


def transfer_targets(agent: BaseLlmAgent) -> list[BaseAgent]:
    targets = [child for child in agent.sub_agents if not child.is_delegate]
    parent = agent.parent_agent
    if parent is not None and parent.takes_transfers:
        if not agent.disallow_transfer_to_parent:
            targets.append(parent)
        if not agent.disallow_transfer_to_peers:
            targets += [peer for peer in parent.sub_agents if peer is not agent and not peer.is_delegate]

    return targets


def transfer_target(agent: BaseLlmAgent, event: Event) -> BaseAgent | None:
    """The agent to which this event of `agent` hands the conversation over."""
    name = event.actions.transfer_to_agent
    if name is None or name == agent.name:
        return None
    return next((target for target in transfer_targets(agent) if target.name == name), None)


def should_return(
    agent: BaseLlmAgent,
    ctx: InvocationContext,
    handing_over: Event,
    since: int,
) -> bool:
    """True if this agent continues after the agent that it transferred to has ended its turn.

    False while the other agent waits for an answer, and after it has transferred back itself.

    since: index in the log at which the other agent began.
    """
    if not asks_for_return(handing_over) or ctx.end_invocation or ctx.is_waiting(since):
        return False
    return not any(
        event.author == agent.name and event.branch == ctx.branch and event.content is not None
        for event in events_of_run(ctx.session.events, ctx.invocation_id, since=since)
    )


def entry_agent(events: CopyOnWriteList[Event], waiting: Event) -> str:
    """Returns the agent at which a run that waits at this event is resumed: the event's author, or the agent or
    workflow that runs its node, or the outermost agent to which control returns afterwards.
    """
    run = log_state_of(events).run(waiting.invocation_id)
    at = next(index for index in reversed(run.indexes) if events[index].id == waiting.id)
    path = waiting.node_path

    entry = path.partition("@")[0] or waiting.author
    name = entry
    for index, event in reversed(run.transfers):
        if index <= at and event.actions.transfer_to_agent == name:
            name = event.author
            if asks_for_return(event) and run.spoken_at.get(name, 0) <= index:
                entry = name

    return entry


def transfer_to_agent(
    agent_name: str,
    tool_context: ToolContext,
    transfer_reason: str = "",
) -> None:
    """Hands the conversation over to another agent.

    Args:
        agent_name: Name of the agent.
        transfer_reason: Why that agent fits better.
    """
    tool_context.actions.transfer_to_agent = agent_name
    tool_context.actions.transfer_reason = transfer_reason or None


class TransferToAgentTool(BaseTool):
    """`transfer_to_agent` for exactly these agents; another name is answered with an error.

    Agents with somebody to hand over to have such a tool already, which this one replaces.

    include_transfer_reason: the model may give a reason, which is stored in the event's actions.
    """

    def __init__(self, agent_names: Sequence[str], include_transfer_reason: bool = False) -> None:
        super().__init__(
            name=TRANSFER_TOOL,
            description="Hands the conversation over to the agent that fits the user's request best.",
            on_interrupt="retry",
        )
        self.agent_names = list(agent_names)
        self.include_transfer_reason = include_transfer_reason

    def _get_declaration(self) -> FunctionDeclaration:
        schema: JsonObject = {
            "type": "object",
            "properties": self._properties(),
            "required": ["agent_name"],
        }
        return FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=schema,
        )

    def _properties(self) -> JsonObject:
        name: JsonObject = {
            "type": "string",
            "enum": self.agent_names,
            "description": "Name of the agent.",
        }
        if not self.include_transfer_reason:
            return {"agent_name": name}

        reason: JsonObject = {"type": "string", "description": "Why that agent fits better."}
        return {"agent_name": name, "transfer_reason": reason}

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        name = args.get("agent_name")
        if name not in self.agent_names:
            return {"error": f"There is no agent {name!r} to transfer to. Choose one of: {', '.join(self.agent_names)}"}

        if self.include_transfer_reason:
            reason = args.get("transfer_reason")
        else:
            reason = None

        transfer_to_agent(name, tool_context, str(reason or ""))

        return None


class TransferTool(TransferToAgentTool):
    """The tool of an agent with targets; it shows their descriptions.

    can_return: the model may ask for the control back, with the argument `return`.
    declares_return: and it sees that argument.
    """

    def __init__(
        self,
        targets: list[BaseAgent],
        *,
        can_return: bool = True,
        declares_return: bool = False,
    ) -> None:
        super().__init__(sorted(target.name for target in targets))
        self.targets = {target.name: target for target in targets}
        self.can_return = can_return
        self.declares_return = declares_return and can_return

    def _properties(self) -> JsonObject:
        properties = super()._properties()
        described = "; ".join(f"{t.name}: {t.description}" for t in self.targets.values() if t.description)
        if described:
            properties["agent_name"]["description"] = described
        if self.declares_return:
            properties[RETURN] = {"type": "boolean", "description": _WHEN_TORETURN}
        return properties

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        result = await super().run_async(args=args, tool_context=tool_context)
        if result is None and self.can_return and args.get(RETURN) is True:
            return {RETURN: True}
        return result

    def instruction(self, agent: BaseLlmAgent) -> str:
        """Says which agents the model can transfer to, and when."""
        lines = [f"- {target.name}: {target.description}" for target in self.targets.values()]
        text = (
            "You can hand the conversation over to one of these agents:\n"
            + "\n".join(lines)
            + f"\nAnswer yourself when you are the best one for it. Otherwise call `{self.name}` with the name of the "
            "best agent, and write no text beside the call. Only the names above are allowed."
        )
        parent = agent.parent_agent
        if parent is not None and parent.name in self.targets:
            text += f" If none of them fits, transfer to {parent.name}."

        return text
