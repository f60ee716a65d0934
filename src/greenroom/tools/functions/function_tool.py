"""Python functions as tools."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Generator
from typing import Any, cast

from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.invocation.user_context import ToolContext
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.confirmation import (
    ConfirmationPredicate,
    confirmation_response,
    is_confirmation_required,
    policy_in,
)
from greenroom.tools.functions.signature import Parameter, read_signature, without_partials
from greenroom.tools.functions.thread_pool import ThreadPool, shared_pool
from greenroom.tools.functions.watchdog import Watchdog
from greenroom.tools.tool import BaseTool, OnInterrupt
from greenroom.tools.value_types.plain_types import InvalidValue

_watchdog = Watchdog()

_MAX_THREADS = 256
_WHILE_PENDING = (
    "This operation takes long and answers later. Once it has reported that it is under way, don't call it again "
    "for the same purpose; wait for its result."
)


class FunctionTool(BaseTool):
    """Awaits asynchronous functions, and runs others in a thread, for which a cancelled run doesn't wait.

    Events that a generator yields are stored and streamed as they come; of its other values the
    last is the result. Exceptions of the function propagate.

    require_confirmation: whether a person must approve each call; an `ApprovalPolicy` says who, in
    place of the app's; or see `ConfirmationPredicate`.
    is_streaming: the function yields values while a live conversation continues.
    takes_input_stream: it receives what the client sends there.
    """

    _is_always_long_running = False

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        require_confirmation: bool | ApprovalPolicy | ConfirmationPredicate = False,
        on_interrupt: OnInterrupt = "report",
        name: str | None = None,
        description: str | None = None,
        custom_metadata: JsonObject | None = None,
        is_long_running: bool = False,
    ) -> None:
        """Raises ToolDeclarationError if the function can't be declared to a model."""
        self._signature = read_signature(func, name=name)
        self._parameters_schema = self._signature.json_schema()
        super().__init__(
            name=self._signature.name,
            description=description or self._signature.description,
            is_long_running=is_long_running or self._is_always_long_running,
            on_interrupt=on_interrupt,
            custom_metadata=custom_metadata,
        )
        self.func = func
        inner = without_partials(func)
        original = inspect.unwrap(inner)
        is_generator = inspect.isgeneratorfunction(original) or inspect.isasyncgenfunction(original)
        self.sends_events = self._signature.context is not None or is_generator
        self._require_confirmation = require_confirmation

        if inspect.isroutine(inner):
            called = inner
        else:
            called = type(inner).__call__

        self.is_streaming = inspect.isasyncgenfunction(called)
        self.takes_input_stream = self._signature.input_stream
        self._is_async = self.is_streaming or inspect.iscoroutinefunction(called)

    def _get_declaration(self) -> FunctionDeclaration:
        if self.is_long_running:
            description = f"{self.description}\n\n{_WHILE_PENDING}"
        else:
            description = self.description
        return FunctionDeclaration(
            name=self.name, description=description, parameters_json_schema=self._parameters_schema
        )

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """Missing or invalid arguments are answered with an error that the model can correct."""
        values, refusal = await self._prepare(args, tool_context)
        if refusal is not None:
            return refusal
        return await self._call(values, tool_context)

    async def refusal(self, *, args: JsonObject, tool_context: ToolContext) -> JsonObject | None:
        """The response in place of the function's: to invalid arguments, or while the call waits
        for approval.
        """
        return (await self._prepare(args, tool_context))[1]

    async def _prepare(
        self,
        args: JsonObject,
        tool_context: ToolContext,
    ) -> tuple[dict[str, Any], JsonObject | None]:
        """The values to call with, and the response in place of the function's, if any."""
        values, refusal = self._read_arguments(args)
        if refusal is None and (needed := await self.check_require_confirmation(values, tool_context)):
            refusal = confirmation_response(self.name, tool_context, policy_in(needed))
        return values, refusal

    def _read_arguments(self, args: JsonObject) -> tuple[dict[str, Any], JsonObject | None]:
        """The values to call with, or the response that says what is wrong with the arguments."""
        missing = [p.name for p in self._signature.parameters.values() if p.is_required and p.name not in args]
        values, faults = self._convert(args) if not missing else ({}, [])
        if missing:
            problem = [
                "these mandatory arguments are missing:",
                *missing,
                "Call it again with all of them.",
            ]
        elif faults:
            problem = ["of these arguments:", *faults, "Call it again with valid ones."]
        else:
            return values, None

        listed = "\n".join(problem)

        return {}, {"error": f"{self.name} was not called, because {listed}"}

    async def check_require_confirmation(self, args: JsonObject, tool_context: ToolContext) -> bool | ApprovalPolicy:
        """True if the call needs an approval, or the policy that says by whom.

        args: converted to the types of the parameters.
        """
        if isinstance(self._require_confirmation, (bool, ApprovalPolicy)):
            return self._require_confirmation
        return await is_confirmation_required(
            self._require_confirmation, args, tool_context, self._signature.parameters
        )

    async def stream(
        self, *, args: JsonObject, tool_context: ToolContext, input_stream: LiveRequestQueue | None
    ) -> AsyncIterator[JsonValue]:
        """The values of a streaming function as they come, for arguments without a `refusal`."""
        values = self._convert(args)[0]
        if input_stream is not None:
            values["input_stream"] = input_stream
        positional = self._arguments(values, tool_context)
        async with contextlib.aclosing(_values(self.func(*positional, **values), tool_context)) as results:
            async for value in results:
                yield value

    def _convert(self, args: JsonObject) -> tuple[dict[str, Any], list[str]]:
        """Values by parameter, and the faults of invalid arguments. Undeclared arguments are dropped."""
        values: dict[str, Any] = {}
        faults: list[str] = []
        for parameter in self._signature.parameters.values():
            if parameter.name in args:
                try:
                    values[parameter.name] = parameter.type.convert(args[parameter.name])
                    continue
                except InvalidValue as error:
                    if args[parameter.name] is not None or parameter.is_required:
                        faults.append(_fault(parameter, error))
                        continue

            # Left out, or null where the function has a default: models write both for "the default".
            if parameter.make_default is not None:
                values[parameter.name] = parameter.make_default()

        return values, faults

    async def _call(self, values: dict[str, Any], tool_context: ToolContext) -> JsonValue:
        positional = self._arguments(values, tool_context)
        if self._is_async:
            return await _watchdog.watch(
                self.name,
                _result(self.func(*positional, **values), tool_context),
            )

        sender = _EventSender(tool_context)
        try:
            result = await _threads(tool_context).run(lambda: _exhausted(self.func(*positional, **values), sender))
        finally:
            sender.stop()

        if inspect.isawaitable(result) or isinstance(result, AsyncIterable):
            # The function is a synchronous wrapper around an asynchronous one.
            return await _watchdog.watch(self.name, _result(cast("Any", result), tool_context))

        return result

    def _arguments(self, values: dict[str, Any], tool_context: ToolContext) -> list[Any]:
        """Adds the context to the values, and takes the positional-only ones out."""
        if self._signature.context is not None:
            values[self._signature.context] = tool_context
        parameters = self._signature.parameters.values()
        return [values.pop(p.name) for p in parameters if p.is_positional_only and p.name in values]


def _threads(tool_context: ToolContext) -> ThreadPool:
    config = tool_context.run_config.tool_thread_pool_config
    return shared_pool(_MAX_THREADS if config is None else config.max_workers)


async def _result(
    outcome: Awaitable[Any] | AsyncIterable[Any],
    tool_context: ToolContext,
) -> JsonValue:
    if not isinstance(outcome, AsyncIterable):
        return await outcome
    last: JsonValue = None
    async with contextlib.aclosing(_values(outcome, tool_context)) as values:
        async for value in values:
            last = value
    return last


async def _values(
    outcome: AsyncIterable[Any],
    tool_context: ToolContext,
) -> AsyncGenerator[JsonValue]:
    """Yields the values of a generator, and sends its events."""
    try:
        async for value in outcome:
            if isinstance(value, Event):
                await _send(value, tool_context)
            else:
                yield value
    finally:
        if isinstance(outcome, AsyncGenerator):
            await cast("AsyncGenerator[Any]", outcome).aclose()


async def _send(event: Event, tool_context: ToolContext) -> None:
    """Returns when the event is stored. Outside of an agent's turn it is dropped."""
    ctx = tool_context.invocation_context
    if ctx.send is not None:
        event.author = event.author or ctx.agent.name
        event.branch = event.branch or ctx.branch
        event.isolation_scope = event.isolation_scope or ctx.isolation_scope
        await ctx.send(event)


class _EventSender:
    """Sends the events of a synchronous generator from its thread, which waits until each is stored.

    When the call has ended, as by cancellation, the generator is stopped at its next event.
    """

    __slots__ = ("_has_stopped", "_loop", "_sending", "_tool_context")

    def __init__(self, tool_context: ToolContext) -> None:
        self._tool_context = tool_context
        self._loop = asyncio.get_running_loop()
        self._sending: asyncio.Task[Any] | None = None
        self._has_stopped = False

    def send(self, event: Event) -> None:
        asyncio.run_coroutine_threadsafe(self._send(event), self._loop).result()

    def stop(self) -> None:
        self._has_stopped = True
        if self._sending is not None:
            self._sending.cancel()

    async def _send(self, event: Event) -> None:
        if self._has_stopped:
            raise asyncio.CancelledError
        self._sending = asyncio.current_task()
        await _send(event, self._tool_context)


def _exhausted(outcome: Any, sender: _EventSender) -> Any:
    """Runs a generator to its end, in the thread that it was made in."""
    if not inspect.isgenerator(outcome):
        return outcome

    last: JsonValue = None
    with contextlib.closing(cast("Generator[Any]", outcome)) as values:
        for value in values:
            if isinstance(value, Event):
                sender.send(value)
            else:
                last = value

    return last


def _fault(parameter: Parameter, error: InvalidValue) -> str:
    expected = parameter.schema.get("type") or parameter.schema.get("title")
    return f"{parameter.name}: {error.detail}" + (f" (expected: {expected})" if expected else "")


class LongRunningFunctionTool(FunctionTool):
    """A function that starts work. Its result is a preliminary response; None leaves the call open.

    A client sends the result later, as a function response with the call's id.
    """

    _is_always_long_running = True
