"""Handing a conversation over to another agent of the tree.

Source: ADK's agent transfer. An agent may hand over to its children, to its parent, and to its parent's other children,
as far as its two flags allow; workflow agents are no targets upwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.agents.agent import BaseAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.tool import BaseTool

if TYPE_CHECKING:
    from greenroom.agents.llm_agent import LlmAgent

TRANSFER_TOOL = "transfer_to_agent"


def transfer_targets(agent: LlmAgent) -> list[BaseAgent]:
    targets = list(agent.sub_agents)
    parent = agent.parent_agent
    if parent is not None and parent.takes_transfers:
        if not agent.disallow_transfer_to_parent:
            targets.append(parent)
        if not agent.disallow_transfer_to_peers:
            targets += [peer for peer in parent.sub_agents if peer is not agent]
    return targets


def handed_over_to(agent: LlmAgent, event: Event) -> BaseAgent | None:
    """The agent to which this event of `agent` hands the conversation over."""
    name = event.actions.transfer_to_agent
    if name is None or name == agent.name:
        return None
    return next((target for target in transfer_targets(agent) if target.name == name), None)


class TransferTool(BaseTool):
    """`transfer_to_agent`, for exactly these targets. A wrong name is told to the model."""

    def __init__(self, targets: list[BaseAgent]) -> None:
        super().__init__(
            name=TRANSFER_TOOL,
            description="Hands the conversation over to the agent that fits the user's request best.",
            on_interrupt="retry",
        )
        self.targets = {target.name: target for target in targets}

    def _get_declaration(self) -> FunctionDeclaration:
        name = {
            "type": "string",
            "enum": sorted(self.targets),
            "description": "; ".join(f"{t.name}: {t.description}" for t in self.targets.values() if t.description)
            or "Name of the agent.",
        }
        schema = {"type": "object", "properties": {"agent_name": name}, "required": ["agent_name"]}
        return FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        name = args.get("agent_name")
        if name not in self.targets:
            return {"error": f"There is no agent {name!r} to transfer to. Choose one of: {', '.join(self.targets)}"}
        tool_context.actions.transfer_to_agent = name
        return None

    def instruction(self, agent: LlmAgent) -> str:
        """Tells the model whom it can hand over to, and when."""
        lines = [f"- {target.name}: {target.description}" for target in self.targets.values()]
        text = (
            "You can hand the conversation over to one of these agents:\n"
            + "\n".join(lines)
            + f"\nAnswer yourself when you are the best one for it. Otherwise call `{self.name}` with the name of the "
            "best agent, and write no text beside the call. Only the names above are allowed."
        )
        parent = agent.parent_agent
        if parent is not None and parent.name in self.targets:
            text += f" If none of them fits, hand over to {parent.name}."
        return text
