"""Functions as nodes: their parameters come from the state and from the node's input."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, cast, get_type_hints

import msgspec

from greenroom.agents.node import BaseNode, NodeExecution
from greenroom.agents.workflow.errors import WorkflowConfigurationError, WorkflowDataError
from greenroom.agents.workflow.requests import (
    REJECTED,
    ask_for_credential,
    confirmation_id,
    confirmation_request,
    has_granted,
    read_decision,
)
from greenroom.agents.workflow.values import converted
from greenroom.errors import AgentConfigError, ToolDeclarationError
from greenroom.invocation.user_context import Context
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.auth import AuthConfig, AuthCredentialTypes, CredentialRequest, without_secrets
from greenroom.records.base import JsonObject
from greenroom.tools.confirmation import ConfirmationPredicate, policy_in
from greenroom.tools.functions.signature import read_signature, without_partials
from greenroom.tools.functions.thread_pool import shared_pool
from greenroom.tools.result import to_plain
from greenroom.tools.value_types.plain_types import InvalidValue, TypeSchema

INPUT = "node_input"
_CONTEXT = "ctx"

_ASKED_OF_THE_USER = (AuthCredentialTypes.API_KEY, AuthCredentialTypes.HTTP)

ParameterBinding = Literal["state", "node_input"]


class FunctionNode(BaseNode):
    """A function, coroutine function or generator as a node. The value that it returns, or yields,
    is its output.

    `node_input` receives the input; a parameter annotated `Context`, or named `ctx`, the context; the others the
    state's values of their names, or with parameter_binding "node_input" the keys of the input. require_confirmation: a
    person must agree before each call, or where the predicate says so. auth_config: the user is asked for a credential
    before the call, which then has it in `ctx.get_auth_response`. Synchronous functions run on the event loop, unless
    the run has a `tool_thread_pool_config`.
    """

    func: Callable[..., Any]
    auth_config: AuthConfig | None = None
    require_confirmation: bool | ApprovalPolicy | ConfirmationPredicate = False
    parameter_binding: ParameterBinding = "state"

    converts_input = True

    def __init__(
        self,
        func: Callable[..., Any] | None = None,
        *,
        name: str | None = None,
        **values: Any,
    ) -> None:
        if func is None or not callable(func):
            raise WorkflowConfigurationError("A FunctionNode needs a function: FunctionNode(func=…)")
        inner = without_partials(func)
        values |= {"func": func, "name": name or getattr(inner, "__name__", type(inner).__name__)}
        super().__init__(**values)

    def __post_init__(self) -> None:
        for name in ("auth_config", "require_confirmation"):
            if getattr(self, name) and not self.rerun_on_resume:
                raise WorkflowConfigurationError(f"Node {self.name!r}: {name} needs rerun_on_resume=True")

        inner = without_partials(self.func)
        if inspect.isroutine(inner):
            called = inner
        else:
            called = type(inner).__call__

        self._is_generator = inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called)
        self._is_async = inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)
        self.description = self.description or inspect.getdoc(called) or ""
        self._parameters = [
            parameter
            for parameter in inspect.signature(self.func).parameters.values()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        self._context, self._types = self._read_types()
        hints = _hints(called)
        self._hints = hints
        if self.input_schema is None and _is_model(hints.get(INPUT)):
            self.input_schema = hints[INPUT]

        if self.output_schema is None and _is_model(hints.get("return")):
            self.output_schema = hints["return"]

    def _read_types(self) -> tuple[str | None, dict[str, TypeSchema]]:
        """The name of the context's parameter, and the types of the others, as far as values can be
        checked by them.
        """
        if any(parameter.name == _CONTEXT for parameter in self._parameters):
            named = _CONTEXT
        else:
            named = None

        try:
            signature = read_signature(self.func, name=self.name)
        except (ToolDeclarationError, AgentConfigError):
            return named, {}

        return signature.context or named, {
            parameter.name: parameter.type for parameter in signature.parameters.values()
        }

    @property
    def state_parameters(self) -> list[str]:
        """Names of the parameters that come from the state."""
        if self.parameter_binding != "state":
            return []
        return [one.name for one in self._parameters if one.name not in (self._context, INPUT, "self")]

    @property
    def is_one_event(self) -> bool:
        return not self._is_generator

    @property
    def gives_output(self) -> bool:
        """True if its annotation says that it always does."""
        returned = _hints(self.func).get("return", None)
        return returned is not None and returned is not type(None) and not self._is_generator

    async def execute(self, execution: NodeExecution) -> None:
        ctx = execution.ctx
        arguments = self._bound(ctx, execution.node_input)

        if self.auth_config is not None and not await self._has_credential(execution, self.auth_config):
            return
        if self.require_confirmation and not await self._may_run(execution, arguments):
            return

        positional = [
            arguments.pop(parameter.name)
            for parameter in self._parameters
            if parameter.kind is parameter.POSITIONAL_ONLY
        ]

        result = await self._called(ctx, functools.partial(self.func, *positional, **arguments))
        if inspect.isasyncgen(result):
            async for value in result:
                await execution.emit(value)
        elif inspect.isgenerator(result):
            for value in cast("Generator[Any]", result):
                await execution.emit(value)
        else:
            await execution.emit(await result if inspect.isawaitable(result) else result)

    async def _called(self, ctx: Context, call: Callable[[], Any]) -> Any:
        threads = ctx.run_config.tool_thread_pool_config
        if threads is None or self._is_async or self._is_generator:
            return call()
        return await shared_pool(threads.max_workers).run(call)

    async def _has_credential(self, execution: NodeExecution, config: AuthConfig) -> bool:
        """Asks the user for the credential where there is none. An app's own key or password is
        none: the user has to give one. Source: ADK.
        """
        from greenroom.agents.human_input.requests import authenticate  # few nodes need credentials

        ctx = execution.ctx.invocation_context

        if not await has_granted(execution):
            return False

        raw = config.raw_auth_credential
        if raw is not None and raw.auth_type in _ASKED_OF_THE_USER:
            config = msgspec.structs.replace(config, raw_auth_credential=without_secrets(raw))

        if await authenticate(ctx, config):
            return True

        await ask_for_credential(
            execution,
            CredentialRequest(id="", session_id=ctx.session.id, auth_config=config),
        )

        return False

    async def _may_run(self, execution: NodeExecution, arguments: dict[str, Any]) -> bool:
        """Asks a person, or reads the answer. When the person refuses, that is the output."""
        ctx = execution.ctx

        needed = self.require_confirmation
        if callable(needed):
            visible = {name: value for name, value in arguments.items() if name != self._context}
            needed = needed(**visible)
            if inspect.isawaitable(needed):
                needed = await needed
            else:
                needed = needed

        if not needed:
            return True

        answer = ctx.resume_inputs.get(confirmation_id(ctx.node_path))
        if answer is None:
            shown: JsonObject = {key: to_plain(value) for key, value in arguments.items() if key != self._context}
            approvals = policy_in(needed) or ctx.invocation_context.services.approvals
            await execution.emit(confirmation_request(ctx.node_path, self.name, shown, None, approvals))
            return False

        ctx.tool_confirmation = read_decision(answer)
        if not ctx.tool_confirmation.confirmed:
            await execution.emit({"error": REJECTED})

        return ctx.tool_confirmation.confirmed

    def _bound(self, ctx: Context, node_input: Any) -> dict[str, Any]:
        arguments: dict[str, Any] = {}

        keys: JsonObject
        if isinstance(node_input, dict):
            keys = cast("JsonObject", node_input)
        else:
            keys = {}

        for parameter in self._parameters:
            name = parameter.name
            if name == self._context:
                arguments[name] = ctx
                continue

            source: Mapping[str, Any] = ctx.state
            if self.parameter_binding == "node_input":
                source = keys
            elif name == INPUT:
                source = {INPUT: node_input}

            if name in source:
                arguments[name] = self._converted(name, source[name])
            elif parameter.default is parameter.empty:
                source_name = "state" if source is ctx.state else "input"
                raise WorkflowDataError(f"Node {self.name!r} needs {name!r}, which its {source_name} does not have")

        return arguments

    def _converted(self, name: str, value: Any) -> Any:
        schema = self._types.get(name)
        hint = self._hints.get(name)
        try:
            if schema is not None and hint is not None:
                value = converted(value, schema, hint)
            else:
                value = value
        except InvalidValue as error:
            raise WorkflowDataError(f"Node {self.name!r}: {name!r} is not valid: {error}") from None

        if isinstance(value, (dict, list)):
            return copy.deepcopy(cast("Any", value))

        return value


def _hints(func: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(without_partials(func))
    except Exception:  # an annotation is any expression, and may name what only type checkers import
        return {}


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and hasattr(hint, "model_fields")
