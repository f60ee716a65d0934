"""Credentials that toolsets need before they can say which tools they have."""

from __future__ import annotations

from greenroom.agents.asking.ask import toolset_request
from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.records.auth import AuthConfig, CredentialRequest
from greenroom.records.event import Event
from greenroom.tools.toolset import BaseToolset


async def ask_for_toolsets(agent: BaseLlmAgent, ctx: InvocationContext) -> Event | None:
    """Give each toolset its credential for this run. The event that asks the user for the first one that is missing."""
    for tool in agent.tools:
        config = tool.get_auth_config() if isinstance(tool, BaseToolset) else None
        if config is not None and not await _let_in(ctx, config):
            request = CredentialRequest(id="", session_id=ctx.session.id, auth_config=config)
            return await toolset_request(ctx, agent.name, type(tool).__name__, request)
    return None


async def _let_in(ctx: InvocationContext, config: AuthConfig) -> bool:
    # Few agents need them, and every start would load them.
    from greenroom.tools.login.credential_provider import CredentialProvider

    context = ToolContext(ctx)
    credentials = CredentialProvider(config)
    try:
        credential = await credentials.credential(context)
    finally:
        await credentials.close()
    if credential is not None:
        context.keep_for_this_run(config, credential)
    return credential is not None
