"""Answers to the open calls of waiting runs: with signals, at their times, or by people."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from greenroom.errors import NotWaiting, RunCancelled
from greenroom.records.base import JsonObject
from greenroom.records.content import Content
from greenroom.records.run import AgentRunRequest, Caller, Run, RunStatus
from greenroom.records.session import SessionKey
from greenroom.records.wake_up import SentSignal, WakeUp, answer_to
from greenroom.redaction.rules import Redaction
from greenroom.runs.engine import OpenCall
from greenroom.runs.inactive_runs import InactiveRuns
from greenroom.runs.memory_writer import MemoryWriter
from greenroom.runs.queues import SessionQueues
from greenroom.runs.signals import check_receives, store_signal
from greenroom.runs.store import RunStore
from greenroom.runs.task import described

_LATE_SECONDS = 1.0
"""Shortest delay, in seconds, that the response to a late call mentions."""


class StartWithAnswer(Protocol):
    """`RunEngine.start`, as answers to open calls use it."""

    async def __call__(
        self,
        request: AgentRunRequest,
        *,
        open_call: OpenCall,
        attach: bool,
        traceparent: str | None,
        caller: Caller | None,
    ) -> tuple[Run, object]: ...


@dataclass(kw_only=True, eq=False)
class OpenCalls:
    """Continues the waiting runs of one engine by responses to their long-running calls.

    get: the newest record of a run. redaction_of: see `RunEngine`. lock: of a session's admission. wait_until_ready:
    returns when this process owns the session. Raises OwnershipLost.
    """

    run_store: RunStore
    queues: SessionQueues
    memory_writer: MemoryWriter
    inactive_runs: InactiveRuns
    get: Callable[[str], Awaitable[Run]]
    start: StartWithAnswer
    redaction_of: Callable[[str], Awaitable[Redaction | None]]
    lock: Callable[[SessionKey], asyncio.Lock]
    wait_until_ready: Callable[[SessionKey], Awaitable[None]]

    async def signal(self, run_id: str, signal: SentSignal, *, while_waiting: bool = True) -> Run:
        """See `RunEngine.signal`."""
        call = await self._call_or_store(run_id, signal, while_waiting=while_waiting)
        if isinstance(call, Run):
            return call
        try:
            return await self._continue(*call, signal=signal)
        except NotWaiting:  # somebody has answered the call meanwhile
            call = await self._call_or_store(run_id, signal, while_waiting=while_waiting)
        if isinstance(call, Run):
            return call
        return await self._continue(*call, signal=signal)

    async def _call_or_store(
        self, run_id: str, signal: SentSignal, *, while_waiting: bool
    ) -> Run | tuple[Run, str, WakeUp]:
        """The call of the run that waits for this signal; or the run, with whose record the signal is stored."""
        run = await self.get(run_id)
        await self.wait_until_ready(run.session_key)
        async with self.lock(run.session_key):
            run = await self.get(run_id)
            call_id = check_receives(run, signal, while_waiting=while_waiting)
            if call_id is not None:
                return run, call_id, run.wake_ups[call_id]
            redaction = await self.redaction_of(run.app_name)
            if redaction is not None:
                signal = msgspec.structs.replace(signal, value=await redaction.redact_json(signal.value))
            store_signal(run, signal)
            await self.run_store.save(run, is_to_remember=self.memory_writer.is_pending(run.id))
            return run

    async def wake(self, run: Run, call_id: str, wake_up: WakeUp, signal: SentSignal | None) -> None:
        """Continues a run with a stored signal or at its time, or cancels it when it is too late."""
        if signal is not None:
            await self._continue(run, call_id, wake_up, signal=signal)
            return

        now = time.time()
        late_seconds = now - (wake_up.at or now)
        if wake_up.max_late_seconds is not None and late_seconds > wake_up.max_late_seconds:
            await self._cancel_late(run, call_id, late_seconds)
            return

        if call_id in run.requests:
            await self._answer_by_default(run, call_id, wake_up)
            return

        response: JsonObject = {"waited": True} if wake_up.signal is None else {"timed_out": True}
        response["time"] = datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds")
        if late_seconds >= _LATE_SECONDS:
            response["late_seconds"] = round(late_seconds, 3)
        await self._continue(run, call_id, wake_up, response=response)

    async def _answer_by_default(self, run: Run, call_id: str, wake_up: WakeUp) -> None:
        """Answers a request to people at the deadline of its policy."""
        request = await self.run_store.get_request(run.requests[call_id])
        if request is not None and request.policy is not None:
            confirmed = request.policy.default == "approve"
            await self._continue(run, call_id, wake_up, response={"confirmed": confirmed})

    async def _cancel_late(self, run: Run, call_id: str, late_seconds: float) -> None:
        """Cancels a run whose call may not be answered so late. Does nothing when somebody has answered it."""
        async with self.lock(run.session_key):
            run = await self.get(run.id)
            if run.status is RunStatus.WAITING and call_id in run.wake_ups and self.queues.active(run.id) is None:
                too_late = RunCancelled(run.id, f"it could only continue {late_seconds:.0f} seconds late")
                run.error = described(too_late)
                await self.inactive_runs.cancel_waiting(run)

    async def _continue(
        self,
        run: Run,
        call_id: str,
        wake_up: WakeUp,
        *,
        signal: SentSignal | None = None,
        response: JsonObject | None = None,
    ) -> Run:
        """Answers a call with a signal's value, or another response. Raises NotWaiting if it is not open."""
        answer = {"value": signal.value} if signal is not None else response or {}
        return await self.answer(run, answer_to(call_id, wake_up.tool, answer), OpenCall(call_id, signal))

    async def answer(self, run: Run, message: Content, open_call: OpenCall) -> Run:
        """Continues a waiting run by the response to a call, as the request that it continues was made."""
        first = run.request or AgentRunRequest(app_name=run.app_name, user_id=run.user_id, session_id=run.session_id)
        request = msgspec.structs.replace(
            first,
            new_message=message,
            invocation_id=None,
            state_delta=None,
            webhooks=None,
            multitask_strategy="enqueue",
        )
        continued, _ = await self.start(
            request,
            open_call=open_call,
            attach=False,
            traceparent=run.traceparent,
            caller=run.caller,
        )
        return continued
