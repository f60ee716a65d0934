"""A run as a sequence of steps, which each gate writes in its protocol's words."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec.structs import replace

from greenroom.errors import ApprovalRefused, GreenroomError, InvalidRequest
from greenroom.event_streams.stream import RunEnded
from greenroom.log.state import log_state_of
from greenroom.records import wire
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.records.content import Blob, Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.human_requests import REQUESTS, requests_in
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.redaction import redact
from greenroom.records.run import AgentRunRequest, OnDisconnect, Run
from greenroom.records.session import Session, SessionKey
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.runs.engine import Attachment
from greenroom.server.replies import StreamReply
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import RUN_ID_HEADER, when_client_leaves
from greenroom.server.sse import KEEP_ALIVE


class TextStep(NamedTuple):
    """Text that was not sent before."""

    message_id: str
    """The same for all pieces of a message."""
    author: str
    text: str
    is_thought: bool


class CorrectionStep(NamedTuple):
    """The whole text of a message whose pieces, sent before, are not how it begins: a model's or a
    callback's last word differs from what was streamed. No other text of the message follows."""

    message_id: str
    author: str
    text: str


class MessageEnd(NamedTuple):
    """The message with this id is complete and stored."""

    message_id: str


class CallStep(NamedTuple):
    """A function call."""

    message_id: str
    author: str
    call: FunctionCall
    is_open: bool
    """Whether the client has to send the response."""
    is_request: bool
    """Whether the framework asks a person by this call."""


class ResponseStep(NamedTuple):
    """The response to a call, by its tool."""

    message_id: str
    response: FunctionResponse


class MediaStep(NamedTuple):
    """A part with a file, inline or by URI."""

    message_id: str
    part: Part


class StateStep(NamedTuple):
    """Changes of the session's state; `REMOVED` removes a key."""

    delta: JsonObject


Step: TypeAlias = TextStep | CorrectionStep | MessageEnd | CallStep | ResponseStep | MediaStep | StateStep | RunEnded


class NewSession(NamedTuple):
    """A session to create."""

    history: Sequence[Content] = ()
    """The conversation so far, as the client states it."""
    state: JsonObject | None = None


class StepReader:
    """Turns the events of a run into steps. Text that came in partial events is not repeated by their message:

        partial "Hel", partial "lo", complete "Hello!"  →  "Hel", "lo", "!"
        partial "Hel", partial "lo", complete "Howdy"   →  "Hel", "lo", a correction with "Howdy"

    Thoughts are not corrected. One message at a time: steps of parallel agents wait until the
    message that began first is complete. usage: the token counts of what was read; a run's record
    counts those of its earlier messages, too.
    """

    def __init__(self) -> None:
        self.usage: GenerateContentResponseUsageMetadata | None = None
        self._said: dict[tuple[str, bool], str] = {}
        self._current: TextStep | CallStep | None = None
        self._waiting: list[Step] = []

    async def next(self, attachment: Attachment, *, idle_seconds: float | None = None) -> list[Step]:
        """All steps that are ready; empty after `idle_seconds` without an event, and for events that show nothing."""
        steps: list[Step] = []
        for item in await attachment.next_batch(idle_seconds=idle_seconds):
            if isinstance(item, RunEnded):
                steps += [*self._waiting, RunEnded(replace(item.run, usage=self.usage), item.error)]
            else:
                steps += self.read(item.event)
        return steps

    def read(self, event: Event) -> list[Step]:
        """The steps of one event; none of the user's own ones."""
        if event.usage_metadata is not None and not event.partial:
            self.usage = self.usage or GenerateContentResponseUsageMetadata()
            self.usage.add(event.usage_metadata)
        return self._in_order(self._steps(event))

    def _in_order(self, steps: Iterable[Step]) -> list[Step]:
        ready: list[Step] = []
        for step in steps:
            current = self._current
            if isinstance(step, (StateStep, RunEnded)) or current is None or step.message_id == current.message_id:
                ready.append(step)
                if isinstance(step, (TextStep, CallStep)):
                    self._current = step
            elif isinstance(step, (TextStep, CallStep)) and step.author == current.author:
                # The agent's earlier message was cut off, and will not be completed.
                self._current = step
                ready.append(step)
            else:
                self._waiting.append(step)
                continue

            if isinstance(step, MessageEnd):
                self._current = None
                waiting = self._waiting
                self._waiting = []
                ready += self._in_order(waiting)

        return ready

    def _steps(self, event: Event) -> Iterator[Step]:
        if event.author == "user" or event.is_internal():
            return

        parts = (event.content.parts if event.content is not None else None) or ()
        if event.partial:
            yield from self._partial_steps(event, parts)
            return
        if event.actions.state_delta:
            yield StateStep(event.actions.state_delta)
        yield from self._complete_steps(event, parts)
        if parts:
            yield MessageEnd(event.id)

    def _partial_steps(self, event: Event, parts: Sequence[Part]) -> Iterator[Step]:
        for part in parts:
            if part.text:
                key = event.id, bool(part.thought)
                self._said[key] = self._said.get(key, "") + part.text
                yield TextStep(event.id, event.author, part.text, key[1])

    def _complete_steps(self, event: Event, parts: Sequence[Part]) -> Iterator[Step]:
        differs: dict[bool, bool] = {}
        left: dict[bool, int] = {}
        for is_thought in (False, True):
            said = self._said.pop((event.id, is_thought), "")
            whole = "".join(part.text for part in parts if part.text and bool(part.thought) is is_thought)
            differs[is_thought] = bool(parts) and not whole.startswith(said)
            left[is_thought] = len(said)
            if differs[is_thought] and not is_thought:
                yield CorrectionStep(event.id, event.author, whole)

        for part in parts:
            if part.text:
                is_thought = bool(part.thought)
                new = "" if differs[is_thought] else part.text[left[is_thought] :]
                left[is_thought] = max(left[is_thought] - len(part.text), 0)
                if new:
                    yield TextStep(event.id, event.author, new, is_thought)
            elif part.function_call is not None:
                call = part.function_call
                is_open = call.id in (event.long_running_tool_ids or ())
                yield CallStep(event.id, event.author, call, is_open, call in requests_in(event))
            elif part.function_response is not None:
                yield ResponseStep(event.id, part.function_response)
            elif part.inline_data is not None or part.file_data is not None:
                yield MediaStep(event.id, part)


def as_object(value: Any) -> JsonObject:
    """The value, or an empty object if it is none."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


class FunctionText(Record, kw_only=True):
    """The function of a call, with its arguments."""

    name: str
    """The name of the function."""
    arguments: str = ""
    """JSON text."""


class ToolCallMessage(Record, kw_only=True):
    """A function call in an assistant's message."""

    id: str
    """The id that the result refers to."""
    function: FunctionText
    """The function with its arguments."""
    type: str = "function"
    """Always `function`."""


class MessageWithCalls(Protocol):
    """A message of AG-UI or of Chat Completions."""

    @property
    def role(self) -> str: ...

    tool_calls: list[ToolCallMessage] | None
    tool_call_id: str | None


M = TypeVar("M", bound=MessageWithCalls)


def contents_of_chat(messages: Iterable[M], parts_of: Callable[[M], list[Part]]) -> list[Content]:
    """Earlier messages of a chat as contents. The responses to calls follow their calls."""
    contents: list[Content] = []
    names: dict[str, str] = {}
    for message in messages:
        parts = parts_of(message)
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            text = "".join(part.text or "" for part in parts)
            answer = FunctionResponse(id=call_id, name=names.get(call_id, ""), response=response_object(text))
            parts = [Part(function_response=answer)]
        for call in message.tool_calls or ():
            names[call.id] = call.function.name
            parts.append(call_part(call.function.name, call.function.arguments, call.id))
        if parts:
            contents.append(Content(role="model" if message.role == "assistant" else "user", parts=parts))

    return contents


def split_conversation(
    contents: Sequence[Content], client_tools: Sequence[FunctionDeclaration] | None
) -> tuple[list[Content], list[Part]]:
    """Splits the whole conversation of a client, which has no session yet, into its history and the new message.

    New is what follows the agent's last message: outputs of the client's functions, then words.
    Outputs of other functions, which the client got from an agent, are history; if nothing else is
    new, the message is empty.
    Raises InvalidRequest for outputs of calls that the conversation doesn't have, and ApprovalRefused for approvals.
    """
    newest = next((at for at in range(len(contents), 0, -1) if contents[at - 1].role == "model"), 0)
    earlier_parts = (part for content in contents[:newest] for part in content.parts or ())
    called = {part.function_call.id: part.function_call.name for part in earlier_parts if part.function_call}
    names = {tool.name for tool in client_tools or ()}
    history = list(contents[:newest])

    parts: list[Part] = []
    for part in (part for content in contents[newest:] for part in content.parts or ()):
        response = part.function_response
        if response is None or called.get(response.id) in names:
            parts.append(part)
        elif response.name in REQUESTS:
            raise ApprovalRefused("no run of this session asks for it")
        elif response.id in called:
            history.append(Content(role="user", parts=[part]))
        else:
            raise no_such_call(response.id)

    return history, parts


def new_message(parts: Iterable[Part], history: Sequence[Content] = ()) -> Content | None:
    """The message with function responses first; None if there are no parts, and the history ends
    with a response, so that an agent is to continue. Raises InvalidRequest if nothing is new."""
    ordered = sorted(parts, key=lambda part: part.function_response is None)
    if ordered:
        return Content(role="user", parts=ordered)
    last = history[-1].parts if history else None
    if last and last[-1].function_response is not None:
        return None
    raise InvalidRequest("Nothing is new: the last message must be a user's or a tool's", location=("body",))


def no_such_call(call_id: str | None) -> InvalidRequest:
    return InvalidRequest(f"No function call of this conversation has the id {call_id}", location=("body",))


def blob_part(data: str, mime_type: str | None) -> Part:
    """data: base64. Raises InvalidRequest."""
    try:
        return Part(inline_data=Blob(data=b64decode(data, validate=True), mime_type=mime_type))
    except ValueError:
        raise InvalidRequest("The data of a part is not base64", location=("body",)) from None


def call_part(name: str, arguments: str, call_id: str) -> Part:
    try:
        args: JsonObject = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        raise InvalidRequest(f"The arguments of the call {call_id} are not a JSON object", location=("body",)) from None
    return Part(function_call=FunctionCall(id=call_id, name=name, args=args))


def arguments_of(call: FunctionCall) -> str:
    return wire.encode(call.args or {}).decode()


def link_to(part: Part) -> str:
    """Media of an agent as Markdown: by URL, or inline as a data URL."""
    if part.file_data is not None:
        return f"[{part.file_data.display_name or 'file'}]({part.file_data.file_uri})"
    if part.inline_data is None or part.inline_data.data is None:
        return ""
    mime_type = part.inline_data.mime_type or "application/octet-stream"
    url = f"data:{mime_type};base64,{b64encode(part.inline_data.data).decode()}"
    return f"{'!' if mime_type.startswith('image/') else ''}[{part.inline_data.display_name or mime_type}]({url})"


class Translator(Protocol):
    """Writes steps as the frames of a protocol."""

    def frames(self, step: Step) -> bytes: ...

    def stopping(self) -> bytes:
        """The last frames when the server stops before the run ends."""
        ...


def stream_reply(
    context: RequestContext,
    attachment: Attachment,
    translator: Translator,
    run: Run,
    *,
    on_disconnect: OnDisconnect | None = None,
) -> StreamReply:
    """A Server-Sent Events stream of the run until its end. on_disconnect: by default as the settings say."""

    async def pieces() -> AsyncGenerator[bytes]:
        reader = StepReader()
        while True:
            steps = await reader.next(attachment, idle_seconds=context.settings.keep_alive_seconds)
            yield b"".join(map(translator.frames, steps)) or KEEP_ALIVE
            if any(isinstance(step, RunEnded) for step in steps):
                return

    return StreamReply(
        pieces=pieces(),
        close=attachment.close,
        when_server_stops=translator.stopping,
        when_client_leaves=when_client_leaves(context, run.id, on_disconnect),
        headers={RUN_ID_HEADER: run.id},
    )


async def all_steps(attachment: Attachment) -> tuple[list[Step], RunEnded]:
    """The steps up to the end of the run, and the end. Closes the attachment."""
    reader = StepReader()
    steps = list[Step]()
    try:
        while True:
            for step in await reader.next(attachment):
                if isinstance(step, RunEnded):
                    return steps, step
                steps.append(step)
    finally:
        attachment.close()


async def start(
    context: RequestContext,
    request: AgentRunRequest,
    *,
    new_session: NewSession | None = None,
    attach: bool = True,
    idempotency_key: str | None = None,
) -> tuple[Run, Attachment | None]:
    """Starts a run, in a session that is created first if `new_session` is given."""
    if new_session is None:
        traceparent = context.headers.get("traceparent")
        return await context.engine.start(
            request, traceparent=traceparent, attach=attach, idempotency_key=idempotency_key
        )

    app = await context.apps.load(request.app_name)
    events = _imported(new_session.history, request.client_tools, agent=app.root_agent.name)
    key = SessionKey(request.app_name, request.user_id, request.session_id)
    await context.sessions.create_session(**key._asdict(), state=new_session.state, events=events)

    try:
        return await start(context, request, attach=attach, idempotency_key=idempotency_key)
    except GreenroomError:
        await context.engine.delete_session(key)
        raise


def _imported(
    history: Iterable[Content], client_tools: Sequence[FunctionDeclaration] | None, *, agent: str
) -> list[Event]:
    """The events of earlier messages. What follows a message of the user, up to the next one, is one run."""
    names = {tool.name for tool in client_tools or ()}
    events: list[Event] = []
    invocation_id = new_invocation_id()

    for content in history:
        is_user = content.role == "user"
        event = Event(author="user" if is_user else agent, content=content)
        if is_user and not event.get_function_responses():
            invocation_id = new_invocation_id()
        event.invocation_id = invocation_id
        called = (call for call in event.get_function_calls() if call.name in names)
        event.long_running_tool_ids = [call.id for call in called if call.id] or None
        redact(event)
        events.append(event)

    return events


async def find_session(context: RequestContext, key: SessionKey) -> Session | None:
    return await context.sessions.get_session(**key._asdict())


def response_part(session: Session | None, call_id: str, output: JsonValue) -> Part:
    """The client's response to an open call. output: see `response_object`. Raises InvalidRequest
    for calls that nobody made or that their tools answer."""
    if session is None:
        raise no_such_call(call_id)
    answer = FunctionResponse(id=call_id, response=response_object(output))
    event = log_state_of(session.events).call_to_answer(answer, location=("body",))
    answer.name = next(call.name for call in event.get_function_calls() if call.id == call_id)
    return Part(function_response=answer)


def response_object(output: JsonValue) -> JsonObject:
    """output: an object, or the JSON text of one; else it becomes `{"result": output}`."""
    if isinstance(output, dict):
        return cast("JsonObject", output)
    if isinstance(output, str):
        with suppress(msgspec.DecodeError, msgspec.ValidationError):
            return msgspec.json.decode(output, type=dict[str, Any])
    return {"result": output}


def data_frame(data: JsonObject) -> bytes:
    return b"data: %b\n\n" % wire.encode(data)
