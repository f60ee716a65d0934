"""AG-UI: `POST /ag-ui/{app_name}` runs an app for a front end, and streams AG-UI's events.

A thread is a session; the run id is an idempotency key, so that the same request attaches to the run that it started.
Functions of the front end are tools that it executes. Requests to a person end a run with the outcome `interrupt`, and
an entry of `resume` answers one. Source: the AG-UI specification, version 1.0.
"""

from __future__ import annotations

from typing import Literal

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
from greenroom.gates.steps import (
    CallStep,
    MediaStep,
    MessageEnd,
    NewSession,
    ResponseStep,
    StateStep,
    Step,
    TextStep,
    ToolCallMessage,
    arguments_of,
    as_object,
    blob_part,
    contents_of_chat,
    data_frame,
    find_session,
    link_to,
    response_part,
    start,
    stream_reply,
)
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.records.calls import ledger_of
from greenroom.records.content import Content, FileData, Part
from greenroom.records.human_requests import DECLINED, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL
from greenroom.records.identifiers import new_event_id
from greenroom.records.run import AgentRunRequest, Run, RunFilter, RunStatus
from greenroom.records.session import Session, SessionKey
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.server.endpoint import Endpoint
from greenroom.server.replies import AnyReply
from greenroom.server.request_context import RequestContext


class ContentSource(Record, kw_only=True):
    """type: `data` (value is base64), `url`, or `file` (value is a provider's handle). value: as the type says.
    mime_type: media type of the content."""

    type: Literal["data", "url", "file"]
    value: str
    mime_type: str | None = None


class ContentPart(Record, kw_only=True):
    """type: the kind of the part. text: of a part of text. source: where the content of other parts is."""

    type: Literal["text", "image", "audio", "video", "document"]
    text: str | None = None
    source: ContentSource | None = None


class Message(Record, kw_only=True):
    """id: the message's id, unique in the thread. role: the author. content: text or parts; of an activity, any JSON.
    tool_calls: calls in an assistant's message. tool_call_id: of a tool's message."""

    id: str = ""
    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    content: JsonValue = None
    tool_calls: list[ToolCallMessage] | None = None
    tool_call_id: str | None = None


class ClientFunction(Record, kw_only=True):
    """name: the function's name. description: what the function does, for the model. parameters: JSON Schema."""

    name: str
    description: str = ""
    parameters: JsonObject | None = None


class ContextEntry(Record, kw_only=True):
    """description: what the value is, for the model. value: text of the context."""

    description: str
    value: str


class ResumeEntry(Record, kw_only=True):
    """interrupt_id: the interrupt that is answered. status: whether it was answered or cancelled. payload: the
    answer."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: JsonValue = None


class RunAgentInput(Record, kw_only=True):
    """thread_id: the session. run_id: inputs with the same one start one run. messages: the conversation, of which the
    newest are read. state: the front end's state; keys that differ from the session's are set there. tools: functions
    of the front end. context: texts for the model. forwarded_props: `userId` names the user where the caller may act
    for it. resume: answers to interrupts of the previous run."""

    thread_id: str
    run_id: str
    messages: list[Message]
    state: JsonValue = None
    tools: list[ClientFunction] | None = None
    context: list[ContextEntry] | None = None
    forwarded_props: JsonValue = None
    resume: list[ResumeEntry] | None = None


class AgUiEvents:
    """Writes the steps of a run as AG-UI's events."""

    def __init__(self, asked: RunAgentInput, state: JsonObject) -> None:
        self._ids = {"threadId": asked.thread_id, "runId": asked.run_id}
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
        elif isinstance(step, MediaStep):
            out += self._add_text(step.message_id, self._step or "", link_to(step.part), is_thought=False)
        elif isinstance(step, MessageEnd):
            out += self._close()
        elif isinstance(step, CallStep):
            out += self._close() + self._enter(step.author)
            out += self._interrupt(step) if step.is_request else self._call(step)
        elif isinstance(step, ResponseStep):
            response = step.response
            content = wire.encode(response.response or {}).decode()
            out += self._close() + _event(
                "TOOL_CALL_RESULT", messageId=new_event_id(), toolCallId=response.id, content=content, role="tool"
            )
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
        run, outcome = ended.run, JsonObject()
        if run.error is not None and run.status is RunStatus.FAILED:
            return _event("RUN_ERROR", message=run.error.message, code=run.error.code)
        if run.status is RunStatus.CANCELLED:
            outcome = {"type": "cancelled"}
        elif self._interrupts:
            outcome = {"type": "interrupt", "interrupts": self._interrupts}
        else:
            outcome = {"type": "success", **({"pendingToolCallIds": self._pending} if self._pending else {})}
        return _event("RUN_FINISHED", **self._ids, outcome=outcome, **_usage(run))

    def _enter(self, author: str) -> bytes:
        """Each agent's part of the run is a step."""
        if author == self._step:
            return b""
        left = self._close() + self._leave()
        self._step = author
        return left + _event("STEP_STARTED", stepName=author)

    def _leave(self) -> bytes:
        name, self._step = self._step, None
        return b"" if name is None else _event("STEP_FINISHED", stepName=name)

    def _add_text(self, message_id: str, author: str, text: str, *, is_thought: bool) -> bytes:
        kind, out = "REASONING_MESSAGE" if is_thought else "TEXT_MESSAGE", b""
        if self._open is None or self._open[:2] != (kind, message_id):
            out = self._close() + self._open_message(kind, message_id, author)
        assert self._open is not None
        return out + _event(f"{kind}_CONTENT", messageId=self._open[2], delta=text)

    def _open_message(self, kind: str, message_id: str, author: str) -> bytes:
        """An event with texts between its calls becomes several messages."""
        unique = message_id if message_id not in self._used else f"{message_id}-{len(self._used)}"
        self._used.add(unique)
        self._open = kind, message_id, unique
        if kind == "TEXT_MESSAGE":
            return _event("TEXT_MESSAGE_START", messageId=unique, role="assistant", name=author)
        begun = _event("REASONING_START", messageId=unique)
        return begun + _event("REASONING_MESSAGE_START", messageId=unique, role="reasoning")

    def _close(self) -> bytes:
        if self._open is None:
            return b""
        (kind, _, unique), self._open = self._open, None
        out = _event(f"{kind}_END", messageId=unique)
        return out if kind == "TEXT_MESSAGE" else out + _event("REASONING_END", messageId=unique)

    def _call(self, step: CallStep) -> bytes:
        call = step.call
        if step.is_open:
            self._pending.append(call.id or "")
        begun = _event("TOOL_CALL_START", toolCallId=call.id, toolCallName=call.name, parentMessageId=step.message_id)
        arguments = _event("TOOL_CALL_ARGS", toolCallId=call.id, delta=arguments_of(call))
        return begun + arguments + _event("TOOL_CALL_END", toolCallId=call.id)

    def _interrupt(self, step: CallStep) -> bytes:
        call, args = step.call, step.call.args or {}
        asked: JsonObject = {"id": call.id, "reason": call.name, "metadata": args}
        hint = as_object(args.get("toolConfirmation")).get("hint") or args.get("message")
        original = as_object(args.get("originalFunctionCall"))
        if isinstance(hint, str):
            asked["message"] = hint
        if original:
            asked["toolCallId"] = original.get("id")
        self._interrupts.append(asked)
        return b""

    def _change_state(self, delta: JsonObject) -> bytes:
        operations: list[JsonObject] = []
        for key, value in delta.items():
            path = "/" + key.replace("~", "~0").replace("/", "~1")
            if value is not None:
                operations.append({"op": "add", "path": path, "value": value})
            elif key in self._state:
                operations.append({"op": "remove", "path": path})
            self._state[key] = value
            if value is None:
                del self._state[key]
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
    user_id = as_object(body.forwarded_props).get("userId") or context.identity.subject
    key = SessionKey(context.path["app_name"], str(user_id), body.thread_id)
    session = await find_session(context, key)
    state = as_object(body.state)
    if session is not None and (run := await _started(context, body, key)):
        attachment = await context.engine.attach(run.id, after=run.message_after_seq)
        return stream_reply(context, attachment, AgUiEvents(body, session.state), run)
    newest = len(body.messages)
    while newest and body.messages[newest - 1].role in ("user", "tool"):
        newest -= 1
    message = _new_message(body, session, newest)
    new_session, known = None, JsonObject()
    if session is None:
        earlier = (message for message in body.messages[:newest] if message.role not in ("activity", "reasoning"))
        new_session = NewSession(contents_of_chat(earlier, _parts), state)
    else:
        known = dict(session.state)
    changes = {name: value for name, value in state.items() if session is not None and known.get(name) != value}
    request = AgentRunRequest(
        **key._asdict(), new_message=message, streaming=True, state_delta=changes or None, client_tools=_tools(body)
    )
    run, attachment = await start(context, request, new_session=new_session, idempotency_key=body.run_id)
    assert attachment is not None
    return stream_reply(context, attachment, AgUiEvents(body, {**known, **state}), run)


async def _started(context: RequestContext, body: RunAgentInput, key: SessionKey) -> Run | None:
    """The run that this input started. Its messages can't be read again once it has answered calls or changed state."""
    where = RunFilter(app_names=[key.app_name], user_id=key.user_id, session_id=key.session_id)
    listed = await context.engine.list_runs(where, limit=5)
    return next((run for run in listed.runs if run.idempotency_key == body.run_id), None)


def _new_message(body: RunAgentInput, session: Session | None, newest: int) -> Content:
    parts = [_answer(entry, session) for entry in body.resume or ()]
    for message in body.messages[newest:]:
        parts += _result(message, session) if message.role == "tool" else _parts(message)
    if not parts:
        raise InvalidRequest("The last message must be a user's or a tool's, or `resume` must answer an interrupt")
    if body.context:
        entries = "\n".join(f"- {entry.description}: {entry.value}" for entry in body.context)
        parts.insert(0, Part(text=f"Context from the application:\n{entries}"))
    return Content(role="user", parts=parts)


def _result(message: Message, session: Session | None) -> list[Part]:
    """The response to an open call; none for a result that the client got from the server and sends back."""
    text = "".join(part.text or "" for part in _parts(message))
    try:
        return [response_part(session, message.tool_call_id or "", text)]
    except InvalidRequest:
        if session is not None and ledger_of(session.events).has_call(message.tool_call_id):
            return []
        raise


def _answer(entry: ResumeEntry, session: Session | None) -> Part:
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
    source = part.source
    if source is None:
        if part.text is None:
            raise InvalidRequest(f"A part of the type {part.type!r} has neither text nor source", location=("body",))
        return Part(text=part.text)
    if source.type != "data":
        return Part(file_data=FileData(file_uri=source.value, mime_type=source.mime_type))
    return blob_part(source.value, source.mime_type)


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
