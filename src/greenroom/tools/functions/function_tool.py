"""A Python function as a tool."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeAlias, cast

from greenroom.errors import ToolError
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.functions.signature import Parameter, read_signature, without_partials
from greenroom.tools.functions.thread_pool import ThreadPool
from greenroom.tools.functions.watchdog import Watchdog
from greenroom.tools.tool import BaseTool, OnInterrupt
from greenroom.tools.value_types.invalid_value import InvalidValue

ConfirmationPredicate: TypeAlias = Callable[..., bool | Awaitable[bool]]

_threads = ThreadPool()
_watchdog = Watchdog()

_WHILE_PENDING = (
    "This operation takes long and answers later. Once it has reported that it is under way, don't call it again "
    "for the same purpose; wait for its result."
)


class FunctionTool(BaseTool):
    """Asynchronous functions are awaited, all others run in a thread; a cancelled run doesn't wait for that thread.

    Of a generator, the last value that isn't an `Event` is the result. Exceptions of the function pass through.
    require_confirmation: True, or a predicate that is called like the function with those arguments it names, or, if
    its only parameter is none of the function's, with the map of all arguments.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        *,
        require_confirmation: bool | ConfirmationPredicate = False,
        on_interrupt: OnInterrupt = "report",
        name: str | None = None,
        description: str | None = None,
        custom_metadata: JsonObject | None = None,
        is_long_running: bool = False,
    ) -> None:
        """Raises ToolDeclarationError when a model can't be told how to call the function."""
        self._signature = read_signature(func, name=name)
        self._parameters_schema = self._signature.json_schema()
        super().__init__(
            name=self._signature.name,
            description=description or self._signature.description,
            is_long_running=is_long_running,
            on_interrupt=on_interrupt,
            custom_metadata=custom_metadata,
        )
        self.func = func
        self._require_confirmation = require_confirmation

    def _get_declaration(self) -> FunctionDeclaration:
        description = f"{self.description}\n\n{_WHILE_PENDING}" if self.is_long_running else self.description
        return FunctionDeclaration(
            name=self.name, description=description, parameters_json_schema=self._parameters_schema
        )

    @property
    def is_streaming(self) -> bool:
        """Whether a live conversation can go on while this function gives one value after the other."""
        func = without_partials(self.func)
        called = func if inspect.isroutine(func) else type(func).__call__
        return inspect.isasyncgenfunction(called)

    @property
    def takes_input_stream(self) -> bool:
        """Whether the function wants to hear what the client says in a live run."""
        return self._signature.input_stream

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """Arguments that are missing or don't fit are answered with an error for the model to correct."""
        values, refusal = await self._prepare(args, tool_context)
        return refusal if refusal is not None else await self._call(values, tool_context)

    async def refusal(self, *, args: JsonObject, tool_context: ToolContext) -> JsonObject | None:
        """The answer in place of the function's: to arguments that don't fit, or while nobody has approved the call."""
        return (await self._prepare(args, tool_context))[1]

    async def _prepare(self, args: JsonObject, tool_context: ToolContext) -> tuple[dict[str, Any], JsonObject | None]:
        """The values to call with, or what speaks against it."""
        missing = [p.name for p in self._signature.parameters.values() if p.is_required and p.name not in args]
        if missing:
            listed = "\n".join(missing)
            return {}, _error(
                f"{self.name} was not called, because these mandatory arguments are missing:\n{listed}\n"
                "Call it again with all of them."
            )
        values, faults = self._convert(args)
        if faults:
            listed = "\n".join([*faults, "Call it again with valid ones."])
            return {}, _error(f"{self.name} was not called, because of these arguments:\n{listed}")
        return values, await self._refusal(values, tool_context)

    async def stream(
        self, *, args: JsonObject, tool_context: ToolContext, input_stream: LiveRequestQueue | None
    ) -> AsyncIterator[JsonValue]:
        """The values of a streaming function as they come. Only for arguments that nothing speaks against."""
        values = self._convert(args)[0]
        if input_stream is not None:
            values["input_stream"] = input_stream
        positional = self._arguments(values, tool_context)
        async with contextlib.aclosing(self.func(*positional, **values)) as results:
            async for value in results:
                if not isinstance(value, Event):
                    yield value

    async def needs_confirmation(self, *, args: JsonObject, tool_context: ToolContext) -> bool:
        """Whether a person has to approve a call with these arguments."""
        return await self._needs_confirmation(self._convert(args)[0], tool_context)

    def _convert(self, args: JsonObject) -> tuple[dict[str, Any], list[str]]:
        """Values by parameter, and what is wrong with the others. Arguments nobody declared are dropped."""
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
            # left out, or null where the function has a default: models write both for "no matter"
            if parameter.make_default is not None:
                values[parameter.name] = parameter.make_default()
        return values, faults

    async def _refusal(self, values: dict[str, Any], tool_context: ToolContext) -> JsonObject | None:
        """The answer in place of the function's, as long as nobody has approved the call."""
        if self._require_confirmation is False or not await self._needs_confirmation(values, tool_context):
            return None
        answer = tool_context.tool_confirmation
        if answer is None:
            tool_context.request_confirmation(
                hint=f"{self.name} wants to run. Approve or reject this call by answering with a function response "
                "that holds a ToolConfirmation."
            )
            tool_context.actions.skip_summarization = True
            return not_run_yet(self.name)
        return None if answer.confirmed else _error(f"{self.name} has not run: a person rejected the call.")

    async def _needs_confirmation(self, values: dict[str, Any], tool_context: ToolContext) -> bool:
        predicate = self._require_confirmation
        if not callable(predicate):
            return predicate
        given = dict(values)
        if self._signature.context is not None:
            given[self._signature.context] = tool_context
        parameters = inspect.signature(predicate).parameters.values()
        names = {p.name for p in parameters}
        if len(names) == 1 and names.isdisjoint({*self._signature.parameters, self._signature.context, "tool_context"}):
            (only,) = parameters
            verdict = predicate(**given) if only.kind is only.VAR_KEYWORD else predicate(values)
        elif any(p.kind is p.VAR_KEYWORD for p in parameters):
            verdict = predicate(**given)
        else:
            given.setdefault("tool_context", tool_context)
            verdict = predicate(**{name: value for name, value in given.items() if name in names})
        return bool(await verdict) if inspect.isawaitable(verdict) else bool(verdict)

    async def _call(self, values: dict[str, Any], tool_context: ToolContext) -> JsonValue:
        positional = self._arguments(values, tool_context)
        try:
            if _is_async(self.func):
                return await _watchdog.watch(self.name, _settled(self.func(*positional, **values)))
            result = await _threads_for(tool_context).run(lambda: _exhausted(self.func(*positional, **values)))
            if inspect.isawaitable(result) or isinstance(result, AsyncIterable):
                # a synchronous wrapper around an asynchronous function
                return await _watchdog.watch(self.name, _settled(cast("Any", result)))
            return result
        except SystemExit as error:
            # code written for the command line leaves this way, and would take the server with it
            raise ToolError(f"{self.name} tried to end the process with exit code {error.code!r}") from error

    def _arguments(self, values: dict[str, Any], tool_context: ToolContext) -> list[Any]:
        """Add the context, and take out what goes by position."""
        if self._signature.context is not None:
            values[self._signature.context] = tool_context
        parameters = self._signature.parameters.values()
        return [values.pop(p.name) for p in parameters if p.is_positional_only and p.name in values]


def _threads_for(tool_context: ToolContext) -> ThreadPool:
    config = tool_context.run_config.tool_thread_pool_config
    return _threads if config is None else _threads_up_to(config.max_workers)


@functools.cache
def _threads_up_to(count: int) -> ThreadPool:
    return ThreadPool(max_threads=count)


async def _settled(outcome: Awaitable[Any] | AsyncIterable[Any]) -> JsonValue:
    if not isinstance(outcome, AsyncIterable):
        return await outcome
    last: JsonValue = None
    async for value in outcome:
        if not isinstance(value, Event):
            last = value
    return last


def _exhausted(outcome: Any) -> Any:
    """Runs a generator to its end, in the thread that it was made in."""
    if not inspect.isgenerator(outcome):
        return outcome
    last: JsonValue = None
    for value in cast("Iterable[Any]", outcome):
        if not isinstance(value, Event):
            last = value
    return last


def _is_async(func: Callable[..., Any]) -> bool:
    func = without_partials(func)
    called = func if inspect.isroutine(func) else type(func).__call__
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


def _fault(parameter: Parameter, error: InvalidValue) -> str:
    expected = parameter.schema.get("type") or parameter.schema.get("title")
    return f"{parameter.name}: {error.detail}" + (f" (expected: {expected})" if expected else "")


def not_run_yet(name: str) -> JsonObject:
    """What stands for a result until a person has decided."""
    return _error(f"{name} has not run yet: the call needs approval or rejection by a person first.")


def _error(text: str) -> JsonObject:
    return {"error": text}
