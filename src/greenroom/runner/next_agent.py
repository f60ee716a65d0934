"""Chooses the agent that takes a turn.

Source: ADK's runner. A message of function responses goes to the agent that made the calls; otherwise the agent that
wrote the last event keeps the conversation, unless it must not transfer to its parent.
"""

from __future__ import annotations

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import caller_of
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.transfer import entry_agent
from greenroom.log.state import log_state_of
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event


def next_agent(
    root: BaseAgent, events: CopyOnWriteList[Event], answered: Event | None, *, before: int | None = None
) -> BaseAgent:
    """Returns the agent for the next turn; with `before`, the agent that took the turn at that index of the log."""
    if answered is not None:
        caller = root.find_agent(entry_agent(events, caller_of(events, answered)))
        if caller is not None:
            return _entry_agent(caller)

    if not root.sub_agents:
        return root
    rewound = log_state_of(events).rewound
    for index in range((len(events) if before is None else before) - 1, -1, -1):
        event = events[index]
        if (
            index in rewound
            or event.author == "user"
            or event.isolation_scope is not None
            or (event.error_code is not None and event.content is None)
        ):
            continue
        target = event.actions.transfer_to_agent
        agent = root.find_agent(target) if target else None
        agent = agent or root.find_agent(event.author)
        if agent is root:
            return root
        if agent is not None and _may_keep_conversation(agent):
            return agent

    return root


def _entry_agent(agent: BaseAgent) -> BaseAgent:
    """Returns the topmost workflow agent above the agent, which resumes from its own checkpoint, else the agent."""
    entry = agent
    above = agent.parent_agent
    while above is not None:
        if not isinstance(above, LlmAgent):
            entry = above
        above = above.parent_agent
    return entry


def _may_keep_conversation(agent: BaseAgent) -> bool:
    above: BaseAgent | None = agent
    while above is not None:
        if (
            not isinstance(above, LlmAgent)
            or above.is_delegate
            or (above.parent_agent is not None and above.disallow_transfer_to_parent)
        ):
            return False
        above = above.parent_agent
    return True
