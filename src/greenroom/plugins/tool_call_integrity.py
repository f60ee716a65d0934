"""Signs the tool calls of agents, so that calls which something else wrote into a session's log are
never executed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Sequence
from typing import Any, cast

from greenroom.errors import AgentConfigError, RunFailed
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.log.state import log_state_of
from greenroom.plugins.plugin import BasePlugin
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.records.human_requests import REQUESTS
from greenroom.records.login_secrets import CALL_SIGNATURES
from greenroom.records.session import Session
from greenroom.tools.result import with_ints
from greenroom.tools.tool import BaseTool

_VERSION = "v1:"

_log = logging.getLogger("greenroom.plugins")


class ToolCallIntegrityError(RunFailed, ValueError):
    """A call in the session's log has no valid signature, or differs from the call to run."""


class ToolCallIntegrityPlugin(BasePlugin):
    """Stores an HMAC with each call, of session, run, branch, author, name, id and arguments. A run
    only starts if the signatures of all calls in the log are valid, and only executes the calls
    that were signed.

    Register it first: it must see the arguments before other plugins change them. Arguments that a
    person edited when approving a call count as the call's.

    secret_key: of several keys the first signs, and all are accepted.
    allow_unstamped_calls: logs a warning for calls without a signature, such as those of before.

    Source: ADK's ToolCallIntegrityPlugin, whose signatures are the same.
    """

    def __init__(
        self,
        secret_key: bytes | Sequence[bytes],
        *,
        allow_unstamped_calls: bool = False,
        name: str = "tool_call_integrity",
    ) -> None:
        super().__init__(name)

        if isinstance(secret_key, bytes):
            self._keys = [secret_key]
        else:
            self._keys = list(secret_key)

        if not self._keys or not all(self._keys):
            raise AgentConfigError("ToolCallIntegrityPlugin needs a secret key, which must not be empty")

        self._allows_unstamped = allow_unstamped_calls

    async def on_event_callback(
        self,
        *,
        invocation_context: InvocationContext,
        event: Event,
    ) -> None:
        calls = [] if event.partial else event.get_function_calls()
        if calls:
            event.invocation_id = event.invocation_id or invocation_context.invocation_id
            session = invocation_context.session
            stamps = {call.id: _VERSION + _hmac(self._keys[0], session, event, call) for call in calls if call.id}
            event.custom_metadata = {**(event.custom_metadata or {}), CALL_SIGNATURES: stamps}

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        session = invocation_context.session
        # A call is verified once while the log stays in memory.
        seen: int = session.events.derived.get(self, 0)
        for event in session.events[seen:]:
            for call in event.get_function_calls():
                if call.name not in REQUESTS:  # the framework's own, which nobody executes
                    self._verify(session, event, call)

        session.events.derived[self] = max(seen, len(session.events))

    async def before_tool_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: JsonObject,
        tool_context: ToolContext,
    ) -> None:
        session = tool_context.session
        ctx = tool_context.invocation_context
        log_state = log_state_of(session.events)
        call_id = tool_context.function_call_id

        if log_state.has_run(ctx.invocation_id):
            run = log_state.run(ctx.invocation_id)
        else:
            run = None

        if run is not None:
            record = run.call(call_id, ctx.agent.name, ctx.branch)
        else:
            record = None

        if record is None or record.call is None or record.event is None:
            self._reject_unstamped(tool.name, call_id)
            return

        self._verify(session, record.event, record.call)

        call = record.effective_call()
        if call is None or call.name != tool.name or _canonical(tool_args) != _canonical(call.args or {}):
            raise ToolCallIntegrityError(f"The call {call_id!r} of {tool.name!r} is not the one in the session's log")

    def _verify(self, session: Session, event: Event, call: FunctionCall) -> None:
        stamps: Any = (event.custom_metadata or {}).get(CALL_SIGNATURES)
        stamp: Any
        if isinstance(stamps, dict):
            stamp = cast("JsonObject", stamps).get(call.id or "")
        else:
            stamp = None

        if stamp is None:
            self._reject_unstamped(call.name, call.id)
        elif not any(_is_equal(_VERSION + _hmac(key, session, event, call), stamp) for key in self._keys):
            raise ToolCallIntegrityError(f"The signature of the call {call.id!r} of {call.name!r} is not valid")

    def _reject_unstamped(self, name: str | None, call_id: str | None) -> None:
        if not self._allows_unstamped:
            raise ToolCallIntegrityError(f"The call {call_id!r} of {name!r} has no signature")
        _log.warning("the call %r of %r has no signature", call_id, name)


def _hmac(key: bytes, session: Session, event: Event, call: FunctionCall) -> str:
    payload = {
        "app_name": session.app_name,
        "user_id": session.user_id,
        "session_id": session.id,
        "invocation_id": event.invocation_id,
        "branch": event.branch,
        "author": event.author,
        "name": call.name,
        "id": call.id,
        "args": call.args or {},
    }
    return hmac.new(key, _canonical(payload).encode(), hashlib.sha256).hexdigest()


def _is_equal(expected: str, stamp: object) -> bool:
    return isinstance(stamp, str) and hmac.compare_digest(expected.encode(), stamp.encode())


def _canonical(value: JsonValue) -> str:
    plain = with_ints(wire.to_plain(value))  # stores of sessions may write 1 as 1.0
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
