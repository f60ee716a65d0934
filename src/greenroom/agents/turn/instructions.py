"""The system text of a request: instructions with their variables filled in, and who the agent is.

Source: ADK's instruction templates. `{name}` is taken from state, `{artifact.name}` from the artifacts; a trailing `?`
makes it optional; whatever is in braces and not such a name stays as it is, so that JSON in a prompt survives.
"""

from __future__ import annotations

import inspect
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.records import wire

if TYPE_CHECKING:
    from greenroom.agents.llm_agent import Instruction, LlmAgent

_BRACES = re.compile(r"(?<![$\\{]){+[^{}]*}+")
_STATE_NAME = re.compile(r"(?:(?:app|user|temp):)?[^\W\d]\w*")
_ARTIFACT = "artifact."


class _Variable(NamedTuple):
    name: str
    is_optional: bool


@lru_cache(maxsize=1024)
def _parse(template: str) -> tuple[str | _Variable, ...]:
    pieces: list[str | _Variable] = []
    end = 0
    for match in _BRACES.finditer(template):
        name = match.group().strip("{} ")
        variable = _Variable(name.removesuffix("?").rstrip(), name.endswith("?"))
        if variable.name.startswith(_ARTIFACT) or _STATE_NAME.fullmatch(variable.name):
            pieces += [template[end : match.start()], variable]
            end = match.end()
    pieces.append(template[end:])
    return tuple(pieces)


async def inject_session_state(template: str, ctx: InvocationContext, *, agent_name: str) -> str:
    """The template with its variables filled in. Raises AgentConfigError that names a variable without a value."""
    pieces = _parse(template)
    if len(pieces) == 1:
        return template
    return "".join([p if isinstance(p, str) else await _value(p, ctx, agent_name) for p in pieces])


async def _value(variable: _Variable, ctx: InvocationContext, agent_name: str) -> str:
    if variable.name.startswith(_ARTIFACT):
        return await _artifact_text(variable, ctx, agent_name)
    value: Any = ctx.session.state.get(variable.name)
    if value is not None:
        return value if isinstance(value, str) else str(value)
    if variable.is_optional or variable.name in ctx.session.state:
        return ""
    raise AgentConfigError(
        f"The instruction of agent {agent_name!r} needs {{{variable.name}}}, which the session's state does not have. "
        f"Write {{{variable.name}?}} if it may be absent."
    )


async def _artifact_text(variable: _Variable, ctx: InvocationContext, agent_name: str) -> str:
    filename = variable.name.removeprefix(_ARTIFACT)
    if ctx.artifact_service is None:
        raise AgentConfigError(f"The instruction of agent {agent_name!r} uses artifacts, but there is no artifact service")
    part = await ctx.artifact_service.load_artifact(
        app_name=ctx.app_name, user_id=ctx.user_id, session_id=ctx.session.id, filename=filename
    )
    if part is None:
        if variable.is_optional:
            return ""
        raise AgentConfigError(f"The instruction of agent {agent_name!r} needs artifact {filename!r}, which is not there")
    if part.text is not None:
        return part.text
    if part.inline_data is not None and (part.inline_data.mime_type or "").startswith("text/"):
        return (part.inline_data.data or b"").decode(errors="replace")
    return wire.encode(part).decode()


async def _resolve(instruction: Instruction, ctx: InvocationContext, agent_name: str) -> str:
    if isinstance(instruction, str):
        return await inject_session_state(instruction, ctx, agent_name=agent_name)
    text = instruction(ReadonlyContext(ctx))
    if inspect.isawaitable(text):
        text = await text
    return text


async def system_text(agent: LlmAgent, ctx: InvocationContext) -> str:
    """The instructions, the stable ones first so that providers' prompt caches hold, and who the agent is."""
    texts: list[str] = []
    if agent.shared_instruction:
        texts.append(await _resolve(agent.shared_instruction, ctx, agent.root_agent.name))
    if agent.static_instruction:
        texts.append(agent.static_instruction)
    if agent.instruction:
        texts.append(await _resolve(agent.instruction, ctx, agent.name))
    identity = f'You are the agent "{agent.name}".'
    if agent.description:
        identity += f" This is what you are for: {agent.description}"
    texts.append(identity)
    return "\n\n".join(text for text in texts if text)
