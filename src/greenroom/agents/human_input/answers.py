"""Reads a person's answers: calls that may be made now, and credentials for them."""

from __future__ import annotations

from greenroom.invocation.context import InvocationContext
from greenroom.log.calls import DecidedCall
from greenroom.log.state import log_state_of
from greenroom.records import wire
from greenroom.records.event import Event
from greenroom.records.human_requests import REQUEST_CREDENTIAL, credential_key, requests_in
from greenroom.records.state import TEMP_PREFIX


def decided_calls(agent: str, ctx: InvocationContext, *, at: int) -> tuple[list[DecidedCall], bool]:
    """The calls of this agent, in this branch, that the message at that index of the log decides on, and whether it is
    the run's newest message."""
    log_state = log_state_of(ctx.session.events)
    calls = [one for one in log_state.decided_at(at) if (one.author, one.branch) == (agent, ctx.branch)]
    return calls, at == log_state.run(ctx.invocation_id).messages[-1]


async def load_granted(ctx: InvocationContext) -> None:
    """Passes the credentials that were granted in this run to its tools."""
    keys: set[str] = set()
    events = ctx.session.events
    for index in log_state_of(events).run(ctx.invocation_id).indexes:
        keys.update(_credential_keys_in(events[index]))
    for key in sorted(keys):
        credential = await ctx.services.credentials.load_credential(
            app_name=ctx.app_name, user_id=ctx.user_id, credential_key=key
        )
        if credential is not None:
            ctx.session.state[f"{TEMP_PREFIX}{key}"] = wire.to_plain(credential)


def _credential_keys_in(event: Event) -> list[str]:
    asked = [(call.args or {}).get("authConfig") for call in requests_in(event) if call.name == REQUEST_CREDENTIAL]
    return [credential_key(config) for config in (*event.actions.requested_auth_configs.values(), *asked)]
