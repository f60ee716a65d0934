"""`/v1/chat/completions`: a run for each request, in a session that begins with the messages before it."""

from __future__ import annotations

import hashlib
import re
from uuid import UUID

from greenroom.event_streams.stream import RunEnded
from greenroom.gates.chat_messages import arguments_of, contents_of_chat, link_to, new_message, split_conversation
from greenroom.gates.openai.messages import (
    INSTRUCTION_ROLES,
    ChatMessage,
    declarations_of,
    parts_of,
    usage_of,
)
from greenroom.gates.replies import all_steps, data_frame, stream_reply
from greenroom.gates.run_start import NewSession, find_session, response_part, start
from greenroom.gates.steps import CallStep, MediaStep, Step, TextStep
from greenroom.log.state import log_state_of
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Content, Part
from greenroom.records.run import AgentRunRequest, Run
from greenroom.records.session import Session, SessionKey
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import RUN_ID_HEADER, failure_of

_CALL_SEPARATOR = "."
"""In ids that earlier versions gave: between the session's and the call's own."""

_DIGEST_LENGTH = 8
_CALL_ID = re.compile(rf"([0-9a-f]{{32}})[0-9a-f]{{{_DIGEST_LENGTH}}}")
"""The session's id without hyphens and a digest of the call's: 40 characters, which all models' services take."""


def public_call_id(session_id: str, call_id: str) -> str:
    digest = hashlib.sha256(call_id.encode()).hexdigest()[:_DIGEST_LENGTH]
    return session_id.replace("-", "") + digest


def _session_of_call(public_id: str) -> str:
    found = _CALL_ID.fullmatch(public_id)
    if found is not None:
        return str(UUID(found[1]))
    return public_id.partition(_CALL_SEPARATOR)[0]


def _own_call_id(public_id: str, session: Session) -> str:
    """The session's own id of a call, by the id that a client was given."""
    session_id = session.id or ""
    if public_id.startswith(session_id + _CALL_SEPARATOR):
        return public_id.removeprefix(session_id + _CALL_SEPARATOR)
    if _CALL_ID.fullmatch(public_id) is None:
        return public_id
    answerable = log_state_of(session.events).answerable_ids()
    return next((call_id for call_id in answerable if public_call_id(session_id, call_id) == public_id), public_id)


class StreamOptions(Record, kw_only=True, rename=None):
    """Options of a streamed reply."""

    include_usage: bool | None = None
    """Whether a last chunk has the run's token counts."""


class ChatRequest(Record, kw_only=True, rename=None):
    """Body of `/chat/completions`."""

    model: str
    """The app's name."""
    messages: list[ChatMessage]
    """The conversation."""
    stream: bool | None = None
    """Whether the reply is a stream of chunks."""
    stream_options: StreamOptions | None = None
    """Options of a streamed reply."""
    tools: list[JsonObject] | None = None
    """Functions of the client."""
    user: str | None = None
    """The user that the caller acts for; by default the caller's own."""
    metadata: dict[str, str] | None = None
    """With `session_id`, the conversation is that session, and only the newest messages are read;
    without it, a new session begins with the earlier messages."""


class ChatReply:
    """A run as a chat completion, whole or in chunks. names_session: whether ids of calls say of
    which session they are, since the client's requests don't."""

    def __init__(self, run: Run, *, names_session: bool, with_usage: bool = False) -> None:
        self._head: JsonObject = {"id": f"chatcmpl-{run.id}", "created": int(run.created_at), "model": run.app_name}
        self._session_id = run.session_id if names_session else None
        self._with_usage = with_usage
        self._message_id: str | None = None
        self._calls = 0

    def whole(self, steps: list[Step], ended: RunEnded) -> JsonObject:
        deltas = [delta for step in steps if (delta := self._delta(step))]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        for call in calls:
            del call["index"]
        text = "".join(delta.get("content", "") for delta in deltas)
        message: JsonObject = {"role": "assistant", "content": text or None, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason(), "logprobs": None}
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage_of(ended.run)}

    def frames(self, step: Step) -> bytes:
        if isinstance(step, RunEnded):
            return self._end(step)
        is_first = self._message_id is None and not self._calls
        delta = self._delta(step)
        if not delta:
            return b""
        return self._chunk({"role": "assistant", **delta} if is_first else delta)

    def stopping(self) -> bytes:
        return data_frame({"error": {"message": "The server is stopping", "type": "Unavailable", "code": "503"}})

    def _delta(self, step: Step) -> JsonObject:
        if isinstance(step, TextStep) and not step.is_thought:
            is_next = self._message_id not in (None, step.message_id)
            self._message_id = step.message_id
            return {"content": "\n\n" + step.text if is_next else step.text}
        if isinstance(step, TextStep):
            return {"reasoning_content": step.text}

        if isinstance(step, CallStep) and step.is_open:
            self._calls += 1
            function = {"name": step.call.name, "arguments": arguments_of(step.call)}
            call_id = step.call.id or ""
            if self._session_id is not None:
                call_id = public_call_id(self._session_id, call_id)
            return {"tool_calls": [{"index": self._calls - 1, "id": call_id, "type": "function", "function": function}]}

        if isinstance(step, MediaStep) and (link := link_to(step.part)):
            return {"content": link}
        return {}

    def _end(self, ended: RunEnded) -> bytes:
        error = ended.run.error
        if error is not None and error.status is not None:
            return data_frame({"error": {"message": error.message, "type": error.code, "code": str(error.status)}})
        frames = self._chunk({}, finish_reason=self._finish_reason())
        if self._with_usage:
            frames += data_frame(
                {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage_of(ended.run)}
            )
        return frames + b"data: [DONE]\n\n"

    def _chunk(self, delta: JsonObject, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return data_frame({**self._head, "object": "chat.completion.chunk", "choices": [choice]})

    def _finish_reason(self) -> str:
        return "tool_calls" if self._calls else "stop"


async def create_chat_completion(context: RequestContext) -> AnyReply:
    body: ChatRequest = context.body
    request, new_session, names_session = await _run_of(context, body)
    run, attachment = await start(context, request, new_session=new_session)
    assert attachment is not None
    options = body.stream_options
    reply = ChatReply(run, names_session=names_session, with_usage=options is not None and bool(options.include_usage))
    if body.stream:
        return stream_reply(context, attachment, reply, run, on_disconnect="cancel")

    steps, ended = await all_steps(attachment)
    return failure_of(ended.run) or Reply(value=reply.whole(steps, ended), headers={RUN_ID_HEADER: run.id})


async def _run_of(context: RequestContext, body: ChatRequest) -> tuple[AgentRunRequest, NewSession | None, bool]:
    """The request, the session to create, and whether ids of calls name the session."""
    messages = body.messages
    newest = len(messages)
    while newest and messages[newest - 1].role != "assistant":
        newest -= 1
    tail = [message for message in messages[newest:] if message.role not in INSTRUCTION_ROLES]
    client_tools = declarations_of(body.tools)
    key, session, names_session = await _session_of(context, body, tail)

    new_session: NewSession | None = None
    if session is None:
        instructions = [
            part for entry in messages if entry.role in INSTRUCTION_ROLES for part in parts_of(entry.content)
        ]
        conversation = (message for message in messages if message.role not in INSTRUCTION_ROLES)
        contents = contents_of_chat(conversation, lambda message: parts_of(message.content))
        history, parts = split_conversation(contents, client_tools)
        if instructions:
            history.insert(0, Content(role="user", parts=instructions))
        new_session = NewSession(history)
        message = new_message(parts, history)
    else:
        message = new_message(part for entry in tail for part in _new_parts(entry, session))

    request = AgentRunRequest(
        **key._asdict(), new_message=message, streaming=bool(body.stream), client_tools=client_tools
    )
    return request, new_session, names_session


async def _session_of(
    context: RequestContext, body: ChatRequest, tail: list[ChatMessage]
) -> tuple[SessionKey, Session | None, bool]:
    """The key of the chat's session, the session if it exists, and whether ids of its calls name it."""
    user_id = body.user or context.identity.subject
    session_id = (body.metadata or {}).get("session_id")
    if session_id is not None:
        key = SessionKey(body.model, user_id, session_id)
        return key, await find_session(context, key), False

    answered = next((message.tool_call_id for message in tail if message.tool_call_id), None)
    if answered is not None:
        key = SessionKey(body.model, user_id, _session_of_call(answered))
        session = await find_session(context, key)
        if session is not None:
            return key, session, True

    key = context.new_session_key(lambda new_id: SessionKey(body.model, user_id, new_id))
    return key, None, True


def _new_parts(message: ChatMessage, session: Session) -> list[Part]:
    """The parts of a new message in a session that exists."""
    parts = parts_of(message.content)
    if message.role != "tool":
        return parts
    call_id = _own_call_id(message.tool_call_id or "", session)
    return [response_part(session, call_id, "".join(part.text or "" for part in parts))]
