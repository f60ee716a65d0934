"""AG-UI: `POST /ag-ui/{app_name}` runs an app for a front end, and streams AG-UI's events.

A thread is a session; the run id is an idempotency key, so that the same request attaches to the
run that it started. Functions of the front end are tools that it executes. Requests to a person end
a run with the outcome `interrupt`, and an entry of `resume` answers one. Source: the AG-UI
specification, version 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from greenroom.errors import (
    AppLoadError,
    AppNotFound,
    ApprovalRefused,
    IdempotencyConflict,
    InvalidRequest,
    SessionBusy,
    SessionFull,
    TooManyRuns,
    Unavailable,
)
from greenroom.event_streams.stream import RunEnded
from greenroom.gates.chat_messages import (
    ToolCallMessage,
    arguments_of,
    blob_part,
    contents_of_chat,
    link_to,
    new_message,
    no_such_call,
    split_conversation,
)
from greenroom.gates.replies import data_frame, stream_reply
from greenroom.gates.run_start import NewSession, find_session, response_part, seconds, start
from greenroom.gates.steps import (
    CallStep,
    CorrectionStep,
    MediaStep,
    MessageEnd,
    ResponseStep,
    StateStep,
    Step,
    TextStep,
)
from greenroom.log.state import log_state_of
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue, Record, as_object
from greenroom.records.content import Content, FileData, FunctionResponse, Part
from greenroom.records.human_requests import DECLINED, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, requests_in
from greenroom.records.identifiers import new_event_id
from greenroom.records.run import AgentRunRequest, MultitaskStrategy, Run, RunFilter, RunStatus
from greenroom.records.session import Session, SessionKey
from greenroom.records.state import REMOVED, apply_delta
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.server.endpoint import Endpoint
from greenroom.server.replies import AnyReply
from greenroom.server.request_context import RequestContext

_CONTEXT = "Context from the application:\n"
_INSTRUCTION_ROLES = ("developer", "system")
_NOT_REPLACED = ("activity", "reasoning")
"""Messages that clients keep when a snapshot has none of their kind."""


class ContentSource(Record, kw_only=True):
    """The source of a medium in a message."""

    type: Literal["data", "url", "file"]
    """`data` (the value is base64), `url`, or `file` (the value is a provider's handle)."""
    value: str
    """The data, the URL or the handle, depending on the type."""
    mime_type: str | None = None
    """Media type of the content."""


class ContentPart(Record, kw_only=True):
    """A part of a message. Clients of versions before 1.0 send files as `binary`, without a source."""

    type: Literal["text", "image", "audio", "video", "document", "binary"]
    text: str | None = None
    """Of a part of text."""
    source: ContentSource | None = None
    """Source of the content of other parts."""
    mime_type: str | None = None
    """Media type of a `binary` part."""
    data: str | None = None
    """Content of a `binary` part, in base64."""
    url: str | None = None
    """Address of a `binary` part's content."""
    id: str | None = None
    """A provider's handle of a `binary` part's content."""
    filename: str | None = None
    """Name of a `binary` part's file."""


class Message(Record, kw_only=True):
    id: str = ""
    """Unique in the thread."""
    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    """The author."""
    content: JsonValue = None
    """Text or parts; of an activity, any JSON."""
    tool_calls: list[ToolCallMessage] | None = None
    """Calls in an assistant's message."""
    tool_call_id: str | None = None
    """Of a tool's message, the call."""
    name: str | None = None
    """A name of the author; not used."""
    error: str | None = None
    """Of a tool's message, the error; not used."""


class ClientFunction(Record, kw_only=True):
    """A function of the front end, offered to the model."""

    name: str
    """The function's name."""
    description: str = ""
    """A description of the function for the model."""
    parameters: JsonObject | None = None
    """The parameters as JSON Schema."""


class ContextEntry(Record, kw_only=True):
    """A text that the front end adds for the model."""

    description: str
    """A description of the value for the model."""
    value: str
    """The value as text."""


class ResumeEntry(Record, kw_only=True):
    """The answer to an interrupt."""

    interrupt_id: str
    """The interrupt that is answered."""
    status: Literal["resolved", "cancelled"]
    """Whether it was answered or cancelled."""
    payload: JsonValue = None
    """The answer."""


class RunAgentInput(Record, kw_only=True):
    """Body of AG-UI's request to run an agent."""

    thread_id: str
    """The session's id."""
    run_id: str
    """Requests with the same id start one run."""
    messages: list[Message]
    """The conversation, of which only the newest messages are read."""
    state: JsonValue = None
    """The front end's state; keys that differ from the session's are stored in the session."""
    tools: list[ClientFunction] | None = None
    """Functions of the front end."""
    context: list[ContextEntry] | None = None
    """Texts for the model."""
    forwarded_props: JsonValue = None
    """`userId` names the user, if the caller may act for that user; `multitaskStrategy` is the policy for a thread that
    has an active run; `startAt` and `delaySeconds` are a later time at which the run starts."""
    resume: list[ResumeEntry] | None = None
    """Answers to interrupts of the previous run."""


class AgUiEvents:
    """Writes the steps of a run as AG-UI's events.

    _messages, _texts, _events: the messages that the events make in the client, by id; the pieces
    of their text, and the ids of the session's events that they are of.
    """

    def __init__(self, agent_input: RunAgentInput, state: JsonObject) -> None:
        self._ids = {"threadId": agent_input.thread_id, "runId": agent_input.run_id}
        self._client_messages = agent_input.messages
        self._messages: dict[str, JsonObject] = {}
        self._texts: dict[str, list[str]] = {}
        self._events: dict[str, str] = {}
        self._state = dict(state)
        self._has_begun = False
        self._open: tuple[str, str, str] | None = None
        self._used: set[str] = set()
        self._step: str | None = None
        self._interrupts: list[JsonObject] = []
        self._pending: list[str] = []

    def frames(self, step: Step) -> bytes:
        out = b"" if self._has_begun else self._begin()
        if isinstance(step, TextStep):
            out += self._enter(step.author)
            out += self._add_text(step.message_id, step.author, step.text, is_thought=step.is_thought)
        elif isinstance(step, CorrectionStep):
            out += self._close() + self._correct(step)
        elif isinstance(step, MediaStep):
            out += self._add_text(step.message_id, self._step or "", link_to(step.part), is_thought=False)
        elif isinstance(step, MessageEnd):
            out += self._close()
        elif isinstance(step, CallStep):
            out += self._close() + self._enter(step.author)
            out += self._interrupt(step) if step.is_request else self._call(step)
        elif isinstance(step, ResponseStep):
            out += self._close() + self._add_result(step.response)
        elif isinstance(step, StateStep):
            out += self._change_state(step.delta)
        else:
            out += self._close() + self._leave() + self._end(step)

        return out

    def stopping(self) -> bytes:
        return _event("RUN_ERROR", message="The server is stopping; send the request again", code="Unavailable")

    def _begin(self) -> bytes:
        self._has_begun = True
        return _event("RUN_STARTED", **self._ids) + _event("STATE_SNAPSHOT", snapshot=self._state)

    def _end(self, ended: RunEnded) -> bytes:
        run = ended.run
        if run.error is not None and run.status is RunStatus.FAILED:
            return _event("RUN_ERROR", message=run.error.message, code=run.error.code)

        outcome: JsonObject = {"type": "success"}
        if run.status is RunStatus.CANCELLED:
            outcome = {"type": "cancelled"}
        elif self._interrupts:
            outcome = {"type": "interrupt", "interrupts": self._interrupts}
        elif self._pending:
            outcome["pendingToolCallIds"] = self._pending

        return _event("RUN_FINISHED", **self._ids, outcome=outcome, **_usage(run))

    def _enter(self, author: str) -> bytes:
        """Begins a step when the author changes: each agent's part of the run is a step."""
        if author == self._step:
            return b""
        closing = self._close() + self._leave()
        self._step = author
        return closing + _event("STEP_STARTED", stepName=author)

    def _leave(self) -> bytes:
        name = self._step
        self._step = None
        return b"" if name is None else _event("STEP_FINISHED", stepName=name)

    def _add_text(self, message_id: str, author: str, text: str, *, is_thought: bool) -> bytes:
        kind = "REASONING_MESSAGE" if is_thought else "TEXT_MESSAGE"
        out = b""
        if self._open is None or self._open[:2] != (kind, message_id):
            out = self._close() + self._open_message(kind, message_id, author)
        assert self._open is not None
        if not is_thought:
            self._texts[self._open[2]].append(text)
        return out + _event(f"{kind}_CONTENT", messageId=self._open[2], delta=text)

    def _correct(self, step: CorrectionStep) -> bytes:
        """Text that was sent can only be replaced by a snapshot of all messages; the client keeps its others."""
        for message_id, event_id in self._events.items():
            if event_id == step.message_id:
                self._texts[message_id] = []
        if step.text:
            self._write_message(step.message_id, step.message_id, step.author)
            self._texts[step.message_id].append(step.text)
        snapshot = [wire.to_plain(message) for message in self._client_messages if message.role not in _NOT_REPLACED]

        for message_id, message in self._messages.items():
            text = "".join(self._texts.get(message_id, ()))
            if text:
                snapshot.append({**message, "content": text})
            elif message["role"] == "tool" or "toolCalls" in message:
                snapshot.append({**message})

        return _event("MESSAGES_SNAPSHOT", messages=snapshot)

    def _write_message(self, message_id: str, event_id: str, author: str) -> None:
        self._messages.setdefault(message_id, {"id": message_id, "role": "assistant", "name": author})
        self._texts.setdefault(message_id, [])
        self._events[message_id] = event_id

    def _open_message(self, kind: str, message_id: str, author: str) -> bytes:
        """An event with texts between its calls becomes several messages."""
        unique = message_id if message_id not in self._used else f"{message_id}-{len(self._used)}"
        self._used.add(unique)
        self._open = kind, message_id, unique
        if kind == "TEXT_MESSAGE":
            self._write_message(unique, message_id, author)
            return _event("TEXT_MESSAGE_START", messageId=unique, role="assistant", name=author)
        begun = _event("REASONING_START", messageId=unique)
        return begun + _event("REASONING_MESSAGE_START", messageId=unique, role="reasoning")

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        kind, _, unique = self._open
        self._open = None
        out = _event(f"{kind}_END", messageId=unique)
        return out if kind == "TEXT_MESSAGE" else out + _event("REASONING_END", messageId=unique)

    def _call(self, step: CallStep) -> bytes:
        call = step.call
        if step.is_open:
            self._pending.append(call.id or "")
        function: JsonObject = {"name": call.name, "arguments": arguments_of(call)}
        message = self._messages.setdefault(step.message_id, {"id": step.message_id, "role": "assistant"})
        message.setdefault("toolCalls", []).append({"id": call.id, "type": "function", "function": function})
        begun = _event("TOOL_CALL_START", toolCallId=call.id, toolCallName=call.name, parentMessageId=step.message_id)
        arguments = _event("TOOL_CALL_ARGS", toolCallId=call.id, delta=function["arguments"])
        return begun + arguments + _event("TOOL_CALL_END", toolCallId=call.id)

    def _add_result(self, response: FunctionResponse) -> bytes:
        content = wire.encode(response.response or {}).decode()
        result: JsonObject = {"toolCallId": response.id, "content": content, "role": "tool"}
        message_id = new_event_id()
        self._messages[message_id] = {"id": message_id, **result}
        return _event("TOOL_CALL_RESULT", messageId=message_id, **result)

    def _interrupt(self, step: CallStep) -> bytes:
        call = step.call
        args = step.call.args or {}
        interrupt: JsonObject = {"id": call.id, "reason": call.name, "metadata": args}
        hint = as_object(args.get("toolConfirmation")).get("hint") or args.get("message")
        original = as_object(args.get("originalFunctionCall"))
        if isinstance(hint, str):
            interrupt["message"] = hint
        if original:
            interrupt["toolCallId"] = original.get("id")
        self._interrupts.append(interrupt)
        return b""

    def _change_state(self, delta: JsonObject) -> bytes:
        operations: list[JsonObject] = []
        for key, value in delta.items():
            path = "/" + key.replace("~", "~0").replace("/", "~1")
            if value != REMOVED:
                operations.append({"op": "add", "path": path, "value": value})
            elif key in self._state:
                operations.append({"op": "remove", "path": path})
        apply_delta(self._state, delta)
        return _event("STATE_DELTA", delta=operations) if operations else b""


def _event(kind: str, **fields: JsonValue) -> bytes:
    return data_frame({"type": kind, **fields})


def _usage(run: Run) -> JsonObject:
    if run.usage is None:
        return {}

    usage = run.usage
    counts = {
        "inputTokens": usage.prompt_token_count,
        "outputTokens": usage.candidates_token_count,
        "totalTokens": usage.total_token_count,
        "reasoningTokens": usage.thoughts_token_count,
        "cachedInputTokens": usage.cached_content_token_count,
    }
    return {"usage": [{name: count for name, count in counts.items() if count is not None}]}


async def run_agent(context: RequestContext) -> AnyReply:
    body: RunAgentInput = context.body
    props = as_object(body.forwarded_props)
    user_id = props.get("userId") or context.identity.subject
    key = SessionKey(context.path["app_name"], str(user_id), body.thread_id)
    session = await find_session(context, key)
    state = as_object(body.state)
    strategy = _strategy(body)
    recent = await _recent_runs(context, key) if session is not None else []
    # The run that this input started: its messages can't be read again once it has answered calls or changed state.
    run = next((run for run in recent if run.idempotency_key == body.run_id), None)
    if session is not None and run is not None:
        attachment = await context.engine.attach(run.id, after=run.message_after_seq)
        return stream_reply(context, attachment, AgUiEvents(body, session.state), run)

    client_tools = _tools(body)
    new_session: NewSession | None = None
    stored_state = JsonObject()
    changes = JsonObject()
    if session is None:
        history, parts = _whole_conversation(body, client_tools)
        new_session = NewSession(history, state)
        message = new_message(parts, history)
    else:
        stored_state = dict(session.state)
        changes = {name: value for name, value in state.items() if stored_state.get(name) != value}
        unread = await _unread_words(context, key) if strategy == "steer" else []
        delayed = [_words_of(run) for run in recent if run.is_delayed]
        message = new_message(_new_parts(body, session, unread, delayed))

    request = AgentRunRequest(
        **key._asdict(),
        new_message=message,
        streaming=True,
        state_delta=changes or None,
        client_tools=client_tools,
        multitask_strategy=strategy,
        start_at=seconds(props, "startAt", location=("body", "forwardedProps")),
        delay_seconds=seconds(props, "delaySeconds", location=("body", "forwardedProps")),
    )
    run, attachment = await start(context, request, new_session=new_session, idempotency_key=body.run_id)
    assert attachment is not None
    return stream_reply(context, attachment, AgUiEvents(body, {**stored_state, **state}), run)


def _strategy(body: RunAgentInput) -> MultitaskStrategy:
    """Raises InvalidRequest."""
    given = as_object(body.forwarded_props).get("multitaskStrategy", "enqueue")
    try:
        return msgspec.convert(given, MultitaskStrategy)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error), location=("body", "forwardedProps", "multitaskStrategy")) from None


async def _unread_words(context: RequestContext, key: SessionKey) -> list[Part]:
    """The words of messages that the active run has not read yet, oldest first."""
    queued = RunFilter(
        app_names=[key.app_name], user_id=key.user_id, session_id=key.session_id, statuses=[RunStatus.QUEUED]
    )
    listed = await context.engine.list_runs(queued, limit=100)
    return [word for run in reversed(listed.runs) if not run.is_delayed for word in _words_of(run)]


def _words_of(run: Run) -> list[Part]:
    """The words of the message of a run that has not begun."""
    message = run.request.new_message if run.request is not None else None
    return [part for part in (message.parts if message is not None else None) or () if _is_word(part)]


async def _recent_runs(context: RequestContext, key: SessionKey) -> list[Run]:
    run_filter = RunFilter(app_names=[key.app_name], user_id=key.user_id, session_id=key.session_id)
    return (await context.engine.list_runs(run_filter, limit=5)).runs


def _whole_conversation(
    body: RunAgentInput, client_tools: list[FunctionDeclaration] | None
) -> tuple[list[Content], list[Part]]:
    """The history of a new thread, and the parts of its new message."""
    for entry in body.resume or ():
        raise no_such_call(entry.interrupt_id)
    messages = _shown_to_models(body)
    instructions = [message for message in messages if message.role in _INSTRUCTION_ROLES]
    others = (message for message in messages if message.role not in _INSTRUCTION_ROLES)
    history, parts = split_conversation(contents_of_chat(others, _parts), client_tools)
    return [*contents_of_chat(instructions, _parts), *history], [*_context(body, parts), *parts]


def _new_parts(
    body: RunAgentInput, session: Session, unread: Sequence[Part], delayed: Sequence[list[Part]]
) -> list[Part]:
    """Returns the new parts of a message to an existing thread: answers to interrupts, then everything after the
    assistant's last message.

    Clients that keep the history themselves send more: results that the server sent them or has already, and the user's
    words before a run that ended without a message. unread: words that are queued for the active run. delayed: those of
    each run that starts later.
    """
    answers = [_answer(entry, session) for entry in body.resume or ()]
    results: list[Part] = []
    repeated_results: list[Part] = []
    words: list[Part] = []
    log_state = log_state_of(session.events)
    messages = _shown_to_models(body)
    newest = next((at for at in range(len(messages), 0, -1) if messages[at - 1].role == "assistant"), 0)
    for message in messages[newest:]:
        if message.role == "user":
            words += _parts(message)
        elif message.role == "tool":
            result = _result(message, session)
            is_repeated = result and not log_state.is_open(message.tool_call_id)
            (repeated_results if is_repeated else results).extend(result)

    for sent in delayed:
        _remove(sent, words)
    last_words = [*_last_user_words(session), *unread]
    is_repetition = bool(last_words) and words[: len(last_words)] == last_words
    if is_repetition and (answers or results or len(words) > len(last_words)):
        words = words[len(last_words) :]
    if not (answers or results or words):
        results = repeated_results
    parts = [*answers, *results, *words]
    return [*_context(body, parts), *parts] if results or words else parts


def _remove(sent: list[Part], words: list[Part]) -> None:
    """Removes words that were sent with an earlier request, unless they are the only ones."""
    for at in range(len(words) - len(sent) + 1):
        if len(sent) < len(words) and words[at : at + len(sent)] == sent:
            del words[at : at + len(sent)]
            return


def _shown_to_models(body: RunAgentInput) -> list[Message]:
    return [message for message in body.messages if message.role not in ("activity", "reasoning")]


def _context(body: RunAgentInput, parts: list[Part]) -> list[Part]:
    """The entries of `context`, to be put before the words of a message that has parts."""
    if not body.context or not parts:
        return []
    entries = "\n".join(f"- {entry.description}: {entry.value}" for entry in body.context)
    return [Part(text=f"{_CONTEXT}{entries}")]


def _last_user_words(session: Session) -> list[Part]:
    """The user's words since the last message that an agent wrote for the client."""
    words: list[Part] = []
    for index in range(len(session.events) - 1, -1, -1):
        event = session.events[index]
        parts = (event.content.parts if event.content is not None else None) or ()
        if event.author == "user":
            words[:0] = [part for part in parts if _is_word(part)]
        elif parts and not requests_in(event):
            break
    return words


def _is_word(part: Part) -> bool:
    return part.function_response is None and not (part.text or "").startswith(_CONTEXT)


def _result(message: Message, session: Session) -> list[Part]:
    """The response to a call; none for a result that the client got from the server and sends back."""
    text = "".join(part.text or "" for part in _parts(message))
    try:
        return [response_part(session, message.tool_call_id or "", text)]
    except InvalidRequest:
        if log_state_of(session.events).has_call(message.tool_call_id):
            return []
        raise


def _answer(entry: ResumeEntry, session: Session) -> Part:
    part = response_part(session, entry.interrupt_id, entry.payload)
    answer = part.function_response
    assert answer is not None
    if answer.name == REQUEST_CONFIRMATION and (entry.status == "cancelled" or isinstance(entry.payload, bool)):
        answer.response = {"confirmed": entry.status == "resolved" and bool(entry.payload)}
    elif entry.status == "cancelled":
        answer.response = dict(DECLINED) if answer.name == REQUEST_CREDENTIAL else {"error": "cancelled"}
    return part


def _parts(message: Message) -> list[Part]:
    if message.content is None or isinstance(message.content, str):
        return [Part(text=message.content)] if message.content else []
    return [_part(part) for part in wire.from_plain(message.content, list[ContentPart])]


def _part(part: ContentPart) -> Part:
    if part.type == "binary":
        return _binary_part(part)

    source = part.source
    if source is None:
        if part.text is None:
            raise InvalidRequest(f"A part of the type {part.type!r} has neither text nor source", location=("body",))
        return Part(text=part.text)
    if source.type != "data":
        return Part(file_data=FileData(file_uri=source.value, mime_type=source.mime_type))

    return blob_part(source.value, source.mime_type)


def _binary_part(part: ContentPart) -> Part:
    if part.data is not None:
        blob = blob_part(part.data, part.mime_type)
        if blob.inline_data is not None:
            blob.inline_data.display_name = part.filename
        return blob
    uri = part.url or part.id
    if not uri:
        raise InvalidRequest("A part of the type 'binary' has neither data nor url nor id", location=("body",))
    return Part(file_data=FileData(file_uri=uri, mime_type=part.mime_type, display_name=part.filename))


def _tools(body: RunAgentInput) -> list[FunctionDeclaration] | None:
    return [
        FunctionDeclaration(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters)
        for tool in body.tools or ()
    ] or None


ENDPOINTS = (
    Endpoint("POST", "/ag-ui/{app_name}", run_agent, "AG-UI", "run", "Run an app and stream AG-UI's events",
        body=RunAgentInput, replies=JsonObject, is_stream=True,
        errors=(AppNotFound, AppLoadError, InvalidRequest, SessionBusy, SessionFull, ApprovalRefused,
            IdempotencyConflict, TooManyRuns, Unavailable)),
)  # fmt: skip
