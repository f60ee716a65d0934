"""Requests that an MCP server makes during a tool call: sampling by the run's model, elicitation by
a person.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from greenroom.errors import GreenroomError, ToolError, message_of
from greenroom.invocation.user_context import ToolContext
from greenroom.models.model import BaseLlm, ask
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, Content, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, CreateMessageResult, ElicitResult, ErrorData, InputRequiredResult

_MAX_ROUNDS = 10
_SAVED = "mcp"

_log = logging.getLogger("greenroom.tools")
_current: ContextVar[McpCall | None] = ContextVar("mcp_call", default=None)


class McpCall:
    """A tool call, with the answers to its server's requests.

    From protocol version 2026-07-28 on, a call that needs input ends with requests and an opaque state, and the next
    request resumes it: the state is stored with the question to a person, so that the call waits durably and does
    nothing twice. An older server asks in the middle of a call, over a connection that a restart ends: it gets the
    answer `cancel`, and the call is repeated once the person has answered.
    """

    def __init__(self, context: ToolContext, open_calls: OpenCalls) -> None:
        self._context = context
        self._open_calls = open_calls
        self._question: JsonObject | None = None
        self._answers: list[JsonObject] = []
        self._round: JsonObject | None = None
        self.is_resumed = self._resume()

    def _resume(self) -> bool:
        """Whether a person has answered a question of the server. The question is read from the
        log, and not from the answer, which a client could forge.
        """
        answer = self._context.tool_confirmation
        call_id = self._context.function_call_id or ""

        if answer is None:
            return False

        for event in reversed(self._context.session.events):
            confirmation = event.actions.requested_tool_confirmations.get(call_id)
            if confirmation is None:
                continue

            question = _object(confirmation.payload)
            if _SAVED not in question:
                return False  # the approval of the call

            saved: JsonObject = question[_SAVED]
            self._round = saved.get("round")

            result: JsonObject = {"action": "accept" if answer.confirmed else "decline"}
            if answer.confirmed and question.get("mode") != "url":
                answers = _object(answer.payload)
                fields: dict[str, JsonObject] = question["requestedSchema"].get("properties", {})
                defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
                result["content"] = defaults | {name: value for name, value in answers.items() if name in fields}

            self._answers = [*saved["answers"], {"question": _plain(question), "result": result}]

            return True

        return False

    async def make(
        self, client: Client, send: Callable[..., Awaitable[CallToolResult | InputRequiredResult]]
    ) -> CallToolResult | None:
        """The result; None when a person must answer first, whom this asks. send: takes `input_responses` and
        `request_state`. Raises ToolError, and MCPError.
        """
        from mcp.types import InputRequiredResult

        token = _current.set(self)
        calls = self._open_calls.setdefault(client.session, [])
        calls.append(self)

        try:
            if self._round is not None:
                current = InputRequiredResult.model_validate(self._round)
            else:
                current = None

            for count in range(_MAX_ROUNDS):
                responses: dict[str, Any] | None = None
                if current is not None:
                    responses = await self._respond(client, current)
                    if self._question is not None:
                        return self._ask(current)
                    if not responses:  # the server only wants to be asked again
                        await asyncio.sleep(min(0.05 * 2**count, 0.25))

                if current is not None:
                    state = current.request_state
                else:
                    state = None

                result = await send(input_responses=responses, request_state=state)

                if self._question is not None:
                    return self._ask(None)
                if not isinstance(result, InputRequiredResult):
                    return result

                self._answers.clear()
                current = result

            raise ToolError(f"the server asked for more input {_MAX_ROUNDS} times")
        finally:
            calls.remove(self)
            _current.reset(token)

    async def _respond(self, client: Client, current: InputRequiredResult) -> dict[str, Any]:
        from mcp import MCPError
        from mcp.client.session import ClientRequestContext
        from mcp.types import ElicitRequest, ErrorData

        responses: dict[str, Any] = {}
        requests = (current.input_requests or {}).items()
        # People are asked first: a model's call before the run waits would be repeated afterwards.
        for key, request in sorted(requests, key=lambda entry: not isinstance(entry[1], ElicitRequest)):
            context = ClientRequestContext(session=client.session, request_id=key)
            response = await client.session.dispatch_input_request(context, request)
            if self._question is not None:
                break
            if isinstance(response, ErrorData):
                raise MCPError.from_error_data(response)
            responses[key] = response

        return responses

    def _ask(self, current: InputRequiredResult | None) -> None:
        assert self._question is not None
        saved: JsonObject = {"answers": self._answers}
        if current is not None:
            saved["round"] = current.model_dump(mode="json", by_alias=True, exclude_none=True)
        payload = {**self._question, _SAVED: saved}
        self._context.request_confirmation(hint=self._question["message"], payload=payload)
        self._context.actions.skip_summarization = True

    def elicit(self, params: Any) -> ElicitResult:
        """Returns a person's answer to the question, or requests one and returns `cancel`."""
        from mcp.types import ElicitResult

        question = _plain(params.model_dump(mode="json", by_alias=True, exclude_none=True))
        for answer in self._answers:
            if answer["question"] == question:
                return ElicitResult.model_validate(answer["result"])

        self._question = self._question or question

        return ElicitResult(action="cancel")

    async def sample(self, params: Any) -> CreateMessageResult:
        """The reply of the run's model, which counts as one of the run's model calls. Raises
        GreenroomError.
        """
        from mcp.types import CreateMessageResult, TextContent

        ctx = self._context.invocation_context

        model_in: Callable[..., BaseLlm] | None = getattr(ctx.agent, "model_in", None)
        if model_in is None:
            raise ToolError("the agent has no model")

        model = model_in(ctx)
        ctx.llm_calls.add()

        contents: list[Content] = []
        for message in params.messages:
            role = "model" if message.role == "assistant" else "user"
            parts = [_part(item) for item in message.content_as_list]
            contents.append(Content(role=role, parts=parts))

        config = GenerateContentConfig(
            system_instruction=params.system_prompt,
            max_output_tokens=params.max_tokens,
            temperature=params.temperature,
            stop_sequences=params.stop_sequences,
        )
        request = LlmRequest(model=model.model, contents=contents, config=config)
        text, last = await ask(model, request)

        return CreateMessageResult(
            role="assistant",
            content=TextContent(text=text),
            model=last.model_version or model.model,
            stop_reason="maxTokens" if last.finish_reason == FinishReason.MAX_TOKENS else "endTurn",
        )


OpenCalls = WeakKeyDictionary[Any, list[McpCall]]
"""The calls in progress of each of the SDK's sessions."""


class ServerRequests:
    """Callbacks of the MCP SDK's client, each on behalf of the call that the server is executing."""

    def __init__(self) -> None:
        self.open_calls = OpenCalls()

    async def sample(self, context: Any, params: Any) -> CreateMessageResult | ErrorData:
        call = self._call_of(context)
        if call is None:
            return _refusal()

        try:
            return await call.sample(params)
        except Exception as error:  # a model may raise anything; the server decides what follows
            _log.warning("a sampling request of an MCP server failed", exc_info=error)
            return _refusal(message_of(error) if isinstance(error, GreenroomError) else type(error).__name__)

    async def elicit(self, context: Any, params: Any) -> ElicitResult | ErrorData:
        call = self._call_of(context)
        return _refusal() if call is None else call.elicit(params)

    def _call_of(self, context: Any) -> McpCall | None:
        """Returns the call for which a server makes a request.

        An older server only shows it by the stream of a call over streamable HTTP, whose reader inherits the variable.
        Otherwise it is known if a single call is open; with several, another user may have made the call, and None is
        returned.
        """
        current = _current.get()
        if current is not None:
            return current
        calls = self.open_calls.get(context.session, ())
        return calls[0] if len(calls) == 1 else None


def _refusal(reason: str = "the request can't be attributed to a single tool call in progress") -> ErrorData:
    from mcp.types import INTERNAL_ERROR, ErrorData

    return ErrorData(code=INTERNAL_ERROR, message=reason)


def _object(payload: JsonValue) -> JsonObject:
    return payload if isinstance(payload, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _plain(question: JsonObject) -> JsonObject:
    names = ("mode", "message", "requestedSchema", "url")
    return {name: question[name] for name in names if name in question}


def _part(item: Any) -> Part:
    if item.type == "text":
        return Part(text=item.text)
    if item.type in ("image", "audio"):
        return Part(inline_data=Blob(data=base64.b64decode(item.data), mime_type=item.mime_type))
    raise ToolError(f"sampling with content of type {item.type!r} is not supported")
