"""Text with variables in braces, filled in from the state and the artifacts of a session.

Source: ADK's instruction templates. `{name}` is taken from state, `{artifact.name}` from the
artifacts; a trailing `?` makes it optional. Other text in braces is left unchanged, such as JSON. A
backslash before braces keeps a name that would be a variable: `\\{name}` becomes `{name}`, and
`\\{{name}}` becomes `{{name}}`. ADK keeps it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from greenroom.errors import AgentConfigError, MissingVariable
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.records import wire

_BRACES = re.compile(r"(?P<escape>\\)?(?<![${]){+[^{}]*}+")
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
        braces = match.group().removeprefix("\\")
        name = braces.strip("{} ")
        variable = _Variable(name.removesuffix("?").rstrip(), name.endswith("?"))
        if not variable.name.startswith(_ARTIFACT) and not _STATE_NAME.fullmatch(variable.name):
            continue
        pieces.append(template[end : match.start()])
        pieces.append(variable if match["escape"] is None else braces)
        end = match.end()

    pieces.append(template[end:])
    return tuple(pieces)


async def inject_session_state(template: str, readonly_context: ReadonlyContext) -> str:
    """Replaces the variables of a template, for instruction functions. Raises MissingVariable."""
    ctx = readonly_context._invocation_context
    return await fill_template(template, ctx, agent_name=readonly_context.agent_name)


async def fill_template(template: str, ctx: InvocationContext, *, agent_name: str) -> str:
    """Replaces the variables of a template. Raises MissingVariable."""
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
    raise MissingVariable(agent_name, variable.name)


async def _artifact_text(variable: _Variable, ctx: InvocationContext, agent_name: str) -> str:
    filename = variable.name.removeprefix(_ARTIFACT)
    if ctx.artifact_service is None:
        raise AgentConfigError(
            f"The instruction of agent {agent_name!r} uses artifacts, but there is no artifact service"
        )

    part = await ctx.artifact_service.load_artifact(**ctx.session.key._asdict(), filename=filename)
    if part is None:
        if variable.is_optional:
            return ""
        raise MissingVariable(agent_name, variable.name)
    if part.text is not None:
        return part.text
    if part.inline_data is not None and (part.inline_data.mime_type or "").startswith("text/"):
        return (part.inline_data.data or b"").decode(errors="replace")

    return wire.encode(part).decode()
