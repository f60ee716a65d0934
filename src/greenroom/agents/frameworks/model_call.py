"""A model call that another framework makes: counted, limited, traced, and seen by the app's plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from greenroom.agents.agent import BaseAgent
from greenroom.agents.callbacks import first_answer
from greenroom.errors import AgentConfigError, GuardrailBlocked
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.identifiers import new_event_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.telemetry.agent_spans import ModelCallSpan

_BEFORE = "before_model_callback"
_AFTER = "after_model_callback"
_ON_ERROR = "on_model_error_callback"


class CallingTurn(Protocol):
    """The turn that a model call belongs to."""

    @property
    def agent(self) -> BaseAgent: ...

    @property
    def ctx(self) -> InvocationContext: ...

    calls_in_progress: int


class ModelRefused(BaseException):
    """Raised through the framework when a plugin refuses a model call, as a budget does. The turn ends with its error.

    Not an Exception, so that neither the framework nor an app's code takes it for a failed call, which it would repeat.

    reply: the plugin's, with an error code. escalates: the plugin ends the loop around the agent.
    """

    def __init__(self, reply: LlmResponse, *, escalates: bool = False) -> None:
        super().__init__(reply.error_message or reply.error_code)
        self.reply = reply
        self.escalates = escalates


class HostedModelCall:
    """One model call: `begin`, then `chunk` for each piece that is streamed, and at last `end` or `fail`.

    The chunks and the complete event share an id, so that a client can replace the chunks.
    """

    def __init__(self, turn: CallingTurn, *, model: str | None, provider_name: str) -> None:
        self._turn = turn
        self._model = model
        self.provider_name = provider_name
        self._ctx = turn.ctx
        self._callback_context: CallbackContext | None = None
        self._span: ModelCallSpan | None = None
        self.event_id = new_event_id()

    async def begin(self, request: Callable[[], LlmRequest]) -> None:
        """Counts the call, and lets plugins refuse it.

        request: converts the framework's request; only called if somebody looks at it. Raises ModelRefused,
        LlmCallsLimitExceeded, and AgentConfigError where a plugin answers in place of the model.
        """
        turn = self._turn
        if turn.calls_in_progress:  # plugins expect one call at a time in a branch
            self._ctx = turn.ctx.for_agent(turn.agent, branch=_branch_of(turn.ctx, self.event_id))
        listeners = turn.ctx.plugins.listeners

        converted: LlmRequest | None = None
        if _BEFORE in listeners or turn.ctx.span is not None:
            converted = request()
            self._model = converted.model or self._model
        if turn.ctx.span is not None:
            self._span = ModelCallSpan(turn.ctx.span, agent_name=turn.agent.name, model=self._model, called=self)
            self._span.event_id = self.event_id

        if converted is not None and _BEFORE in listeners:
            with converted.own_contents():
                answer = await first_answer(
                    turn.agent, self._ctx, _BEFORE, callback_context=self.callback_context, llm_request=converted
                )
            if answer is not None:
                self._refuse(answer)

        turn.ctx.llm_calls.add()
        turn.calls_in_progress += 1
        if self._span is not None and converted is not None:
            self._span.note_request(converted)

    def _refuse(self, answer: LlmResponse) -> None:
        if self._span is not None:
            self._span.fail(answer.error_code or "refused")
            self._span.end()
        if answer.error_code is None:
            raise AgentConfigError(
                f"A plugin answers in place of the model of {self._turn.agent.name!r}, "
                f"which {type(self._turn.agent).__name__} can't pass on: its framework calls the model"
            )
        raise ModelRefused(answer, escalates=bool(self.callback_context.actions.escalate))

    @property
    def callback_context(self) -> CallbackContext:
        if self._callback_context is None:
            self._callback_context = CallbackContext(self._ctx)
        return self._callback_context

    def chunk(self, *parts: Part) -> Event:
        """A partial event, to be published."""
        if self._span is not None and not self._span.first_reply_time:
            self._span.note_first_reply()
        event = self._turn.ctx.new_event(content=Content(role="model", parts=list(parts)))
        event.id = self.event_id
        event.partial = True
        return event

    async def end(self, reply: LlmResponse) -> Event:
        """The complete event of a reply, to be stored. Raises ModelRefused where a guardrail blocks it."""
        self._turn.calls_in_progress -= 1
        if _AFTER in self._turn.ctx.plugins.listeners:
            try:
                changed: LlmResponse | None = await first_answer(
                    self._turn.agent, self._ctx, _AFTER, callback_context=self.callback_context, llm_response=reply
                )
            except GuardrailBlocked as blocked:
                self._refuse(LlmResponse(error_code=blocked.code, error_message=blocked.detail))
                raise
            if changed is not None and changed.content is not None:
                reply.content = changed.content
        if self._span is not None:
            self._span.note_first_reply()
            self._span.note_reply(reply)
            self._span.end()

        event = self._turn.ctx.new_event(content=_of_model(reply.content))
        event.id = self.event_id
        for name in LlmResponse.__struct_fields__:
            value = getattr(reply, name)
            if value is not None and name not in ("content", "partial"):
                setattr(event, name, value)
        if event.usage_metadata is not None and event.model_version is None:
            event.model_version = self._model
        if self._callback_context is not None:
            event.actions = self._callback_context.collect_actions()
        return event

    async def fail(self, error: BaseException, request: Callable[[], LlmRequest]) -> None:
        """Notifies the plugins of an error of the model. The framework decides what becomes of it."""
        self._turn.calls_in_progress -= 1
        if self._span is not None:
            self._span.fail(error)
            self._span.end()
        if _ON_ERROR in self._turn.ctx.plugins.listeners and isinstance(error, Exception):
            await first_answer(
                self._turn.agent,
                self._ctx,
                _ON_ERROR,
                callback_context=self.callback_context,
                llm_request=request(),
                error=error,
            )


def _branch_of(ctx: InvocationContext, call_id: str) -> str:
    return f"{ctx.branch}.{call_id}" if ctx.branch else call_id


def _of_model(content: Content | None) -> Content | None:
    if content is None or not content.parts:
        return None
    return content if content.role else Content(role="model", parts=content.parts)
