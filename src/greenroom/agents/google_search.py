"""An agent that searches with Google, as a tool for agents that have other tools beside it."""

from __future__ import annotations

from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.models.model import BaseLlm
from greenroom.tools.builtin.model_side import google_search


def create_google_search_agent(model: str | BaseLlm) -> LlmAgent:
    return LlmAgent(
        name="google_search_agent",
        model=model,
        description="Searches the web with Google. Ask it in full sentences.",
        instruction="Answer the request with what the search finds, and say so when it finds nothing.",
        tools=[google_search],
    )


class GoogleSearchAgentTool(AgentTool):
    """Searches with Google through an agent of its own.

    agent: one with `google_search`, such as that of `create_google_search_agent`. Its sources
    are the caller's.
    """

    def __init__(self, agent: LlmAgent) -> None:
        super().__init__(agent, propagate_grounding_metadata=True)
