"""`/v1/responses`: a response is a message to a run and the events after it, read from the session's log."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote
from zlib import crc32

import msgspec
from msgspec.structs import replace

from greenroom.errors import InvalidRequest, RunNotFound
from greenroom.event_streams.stream import RunEnded
from greenroom.gates.chat_messages import arguments_of, link_to, new_message, split_conversation
from greenroom.gates.openai.messages import contents_of, declarations_of, is_from_agent, usage_of
from greenroom.gates.replies import all_steps, data_frame, stream_reply
from greenroom.gates.run_start import NewSession, find_session, seconds, start
from greenroom.gates.steps import CallStep, CorrectionStep, MediaStep, MessageEnd, Step, StepReader, TextStep
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Content, Part
from greenroom.records.run import AgentRunRequest, MultitaskStrategy, Run, RunStatus
from greenroom.records.session import SessionKey
from greenroom.records.steering import is_steering
from greenroom.server.replies import AnyReply, Reply, StreamReply
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import PAGE_LIMIT, RUN_ID_HEADER, failure_of

_ID = re.compile(r"resp_(?P<run>.+)_(?P<seq>\d{1,18})")
_ITEM_ID = re.compile(r"[a-z]+_(?P<response>.+_\d{1,18})_\d+")

_STATUSES = {
    RunStatus.QUEUED: "queued",
    RunStatus.RUNNING: "in_progress",
    RunStatus.WAITING: "completed",
    RunStatus.SUCCEEDED: "completed",
    RunStatus.FAILED: "failed",
    RunStatus.CANCELLED: "cancelled",
}


class Conversation(Record, kw_only=True, rename=None):
    """A session, named in a request."""

    id: str
    """The session's id."""


class ResponsesRequest(Record, kw_only=True, rename=None):
    """Body of `/responses`."""

    model: str
    """The app's name."""
    input: str | list[JsonObject]
    """Text, or items."""
    instructions: str | None = None
    """Further instructions for the model."""
    previous_response_id: str | None = None
    """Continues that response's session."""
    conversation: str | Conversation | None = None
    """A session, which is created if it does not exist."""
    stream: bool | None = None
    """Whether the reply is a stream of events."""
    background: bool | None = None
    """Whether to reply before the run ends."""
    tools: list[JsonObject] | None = None
    """Functions of the client."""
    user: str | None = None
    """The user that the caller acts for; by default the caller's own."""
    metadata: dict[str, str] | None = None
    """Repeated in the reply. `multitask_strategy` is the policy for a conversation that has an active run; `start_at`
    and `delay_seconds` are a later time at which the run starts."""


_CHECK = 1 << 20


class ResponseWriter:
    """A run as a response: its items, and the events of a stream.

    The sequence number of an event is a position, times 2^20, plus a checksum of the text streamed before. A text takes
    a position for each character, so that a stream that is read from the log has the numbers of the live one:

        "Hel" (7), "lo" (9), or read from the log "Hello" (9); after number 7 the log's stream begins with "lo"

    after: the last number that the client has received; earlier events are left out. If the text differs from the one
    that the client has received, the stream becomes an `error` event, and `is_over` is true.
    """

    def __init__(
        self,
        run: Run,
        request: ResponsesRequest | None = None,
        *,
        response_id: str | None = None,
        after: int | None = None,
    ) -> None:
        self.output: list[JsonObject] = []
        self.is_over = False
        self._id = response_id or id_of(run)
        self._run = run
        self._request = request
        self._streamed = -1
        self._checksum = 0
        self._after, self._after_checksum = (-1, 0) if after is None else divmod(after, _CHECK)
        self._open: JsonObject | None = None
        self._message_id = ""
        self._text: list[str] = []

    def response(self, run: Run, status: str | None = None) -> JsonObject:
        request = self._request
        error = None
        if run.error is not None:
            error = {"code": "server_error", "message": f"{run.error.code}: {run.error.message}"}

        return {
            "id": self._id,
            "object": "response",
            "created_at": int(run.created_at),
            "status": status or _STATUSES[run.status],
            "model": run.app_name,
            "output": self.output,
            "error": error,
            "incomplete_details": None,
            "background": bool(request and request.background),
            "conversation": {"id": run.session_id},
            "instructions": request.instructions if request else None,
            "metadata": (request.metadata if request else None) or {},
            "parallel_tool_calls": True,
            "previous_response_id": request.previous_response_id if request else None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": (request.tools if request else None) or [],
            "usage": usage_of(run, ("input", "output")),
        }

    def frames(self, step: Step) -> bytes:
        if self.is_over:
            return b""

        out = b"" if self._streamed >= 0 else self._begin()
        if isinstance(step, TextStep):
            out += self._add_text(step.message_id, step.text, is_thought=step.is_thought)
        elif isinstance(step, CorrectionStep):
            out += self._correct_text(step)
        elif isinstance(step, MediaStep):
            out += self._add_text(step.message_id, link_to(step.part), is_thought=False)
        elif isinstance(step, MessageEnd):
            out += self._close()
        elif isinstance(step, CallStep) and step.is_open:
            out += self._close() + self._add_call(step)
        elif isinstance(step, RunEnded):
            out += self._close() + self._end(step.run)
            self.is_over = True
            if self._streamed < self._after:
                return self._lost()

        return out

    def stopping(self) -> bytes:
        return self._numbered("error", {"code": "Unavailable", "message": "The server is stopping", "param": None})

    def _begin(self) -> bytes:
        begun = self.response(self._run, "in_progress")
        created = self._frame("response.created", {"response": begun})
        return created + self._frame("response.in_progress", {"response": begun})

    def _end(self, run: Run) -> bytes:
        response = self.response(run)
        kind = "incomplete" if response["status"] == "cancelled" else response["status"]
        return self._frame(f"response.{kind}", {"response": response})

    def _add_text(self, message_id: str, text: str, *, is_thought: bool) -> bytes:
        kind = "reasoning" if is_thought else "message"
        out = b""
        if self._open is not None and self._message_id != message_id:  # that message will not be completed
            out = self._close("incomplete")
        elif self._open is not None and self._open["type"] != kind:
            out = self._close()

        if self._open is None:
            out += self._open_item(kind, message_id)
        self._text.append(text)
        data: JsonObject = {**self._item_position(), "delta": text}
        name = "response.reasoning_summary_text.delta"
        if not is_thought:
            data["logprobs"] = []
            name = "response.output_text.delta"
        return out + self._frame(name, data, check=text, is_text=True)

    def _correct_text(self, step: CorrectionStep) -> bytes:
        """Replaces an open text. Its pieces can't be taken back, but the events that end it have the corrected text."""
        out = b""
        if self._open is not None and (self._message_id != step.message_id or self._open["type"] != "message"):
            out = self._close()
        if self._open is None:
            out += self._open_item("message", step.message_id)
        self._text = [step.text]
        return out

    def _open_item(self, kind: str, message_id: str) -> bytes:
        if kind == "reasoning":
            prefix = "rs"
            name = "response.reasoning_summary_part.added"
            content: JsonObject = {"summary": []}
        else:
            prefix = "msg"
            name = "response.content_part.added"
            content = {"role": "assistant", "content": []}

        self._message_id = message_id
        self._open = {"id": self._item_id(prefix), "type": kind, "status": "in_progress", **content}
        item: JsonObject = {"output_index": len(self.output), "item": self._open}
        added = self._frame("response.output_item.added", item, check=self._open["id"])
        return added + self._frame(name, {**self._item_position(), "part": _text_part(kind, "")})

    def _close(self, status: str = "completed") -> bytes:
        """Ends the open item."""
        item = self._open
        if item is None:
            return b""

        text = "".join(self._text)
        kind = item["type"]
        part = _text_part(kind, text)
        position = self._item_position()
        self._text = []
        self._open = None
        item["status"] = status

        if kind == "reasoning":
            item["summary"] = [part]
            out = self._frame("response.reasoning_summary_text.done", {**position, "text": text})
            out += self._frame("response.reasoning_summary_part.done", {**position, "part": part})
        else:
            item["content"] = [part]
            out = self._frame("response.output_text.done", {**position, "text": text, "logprobs": []})
            out += self._frame("response.content_part.done", {**position, "part": part})
        out += self._frame("response.output_item.done", {"output_index": len(self.output), "item": item})
        self.output.append(item)
        return out

    def _add_call(self, step: CallStep) -> bytes:
        call = step.call
        index = len(self.output)
        item: JsonObject = {
            "id": self._item_id("fc"),
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
        }
        arguments = arguments_of(call)
        position = {"item_id": item["id"], "output_index": index}
        begun = {**item, "arguments": "", "status": "in_progress"}
        done = {**item, "arguments": arguments, "status": "completed"}
        self.output.append(done)

        frames: list[tuple[str, JsonObject]] = [
            ("response.output_item.added", {"output_index": index, "item": begun}),
            ("response.function_call_arguments.delta", {**position, "delta": arguments}),
            ("response.function_call_arguments.done", {**position, "arguments": arguments, "name": call.name}),
            ("response.output_item.done", {"output_index": index, "item": done}),
        ]
        return b"".join(self._frame(name, data, check=call.id or "") for name, data in frames)

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._id.removeprefix('resp_')}_{len(self.output)}"

    def _item_position(self) -> JsonObject:
        assert self._open is not None
        part = "summary_index" if self._open["type"] == "reasoning" else "content_index"
        return {"item_id": self._open["id"], "output_index": len(self.output), part: 0}

    def _frame(self, name: str, data: JsonObject, *, check: str = "", is_text: bool = False) -> bytes:
        """Returns the next event, or the part of it that comes after `after`.

        check: the text that identifies the event in the checksum.
        """
        size = len(check) if is_text else 1
        seen_size = self._after - self._streamed
        if self.is_over:
            return b""
        if 0 < seen_size <= size:
            seen = check[:seen_size] if is_text else check
            if _checksum(seen, self._checksum) % _CHECK != self._after_checksum:
                return self._lost()

        self._streamed += size
        self._checksum = _checksum(check, self._checksum)
        if seen_size >= size:
            return b""
        return self._numbered(name, {**data, "delta": check[seen_size:]} if is_text and seen_size > 0 else data)

    def _lost(self) -> bytes:
        self.is_over = True
        message = "What was streamed up to this number is not what is stored; read the response from its start"
        return self._numbered("error", {"code": "InvalidRequest", "message": message, "param": "starting_after"})

    def _numbered(self, name: str, data: JsonObject) -> bytes:
        number = max(self._streamed, 0) * _CHECK + self._checksum % _CHECK
        return b"event: %b\n%b" % (name.encode(), data_frame({"type": name, **data, "sequence_number": number}))


def _checksum(text: str, before: int) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"), before)


def _text_part(kind: str, text: str) -> JsonObject:
    if kind == "reasoning":
        return {"type": "summary_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def id_of(run: Run) -> str:
    """A run may get several messages, each with a response of its own."""
    return f"resp_{run.id}_{run.message_after_seq}"


async def create_response(context: RequestContext) -> AnyReply:
    body: ResponsesRequest = context.body
    request, new_session = await _run_of(context, body)
    in_background = bool(body.background) and not body.stream
    run, attachment = await start(context, request, new_session=new_session, attach=not in_background)
    reply = ResponseWriter(run, body)
    if attachment is None:
        return Reply(value=reply.response(run))
    if body.stream:
        return stream_reply(
            context,
            attachment,
            reply,
            run,
            on_disconnect="continue" if body.background else None,
            continuation=_continuation(id_of(run), after=None),
        )

    steps, ended = await all_steps(attachment)
    for step in steps:
        reply.frames(step)
    return failure_of(ended.run) or Reply(value=reply.response(ended.run), headers={RUN_ID_HEADER: run.id})


async def get_response(context: RequestContext) -> AnyReply:
    run, seq = await _find(context, context.path["response_id"])
    if not context.query["stream"]:
        reply, run = (await _stored(context, run, seq))[:2]
        return Reply(value=reply.response(run))

    after = context.query["starting_after"]
    if seq < run.message_after_seq:
        *_, frames, is_followed = await _stored(context, run, seq, after=after)
        if is_followed:
            return StreamReply(pieces=_pieces(frames), close=lambda: None, headers={RUN_ID_HEADER: run.id})

    attachment = await context.engine.attach(run.id, after=seq)
    translator = ResponseWriter(run, response_id=context.path["response_id"], after=after)
    reply = stream_reply(
        context,
        attachment,
        translator,
        run,
        on_disconnect="continue",
        continuation=_continuation(context.path["response_id"], after=after),
    )
    reply.pieces = _until_over(reply.pieces, translator)
    return reply


def _continuation(response_id: str, *, after: int | None) -> str:
    number = -1 if after is None else after
    return f"/v1/responses/{quote(response_id, safe='')}?stream=true&starting_after={number}"


async def _pieces(frames: bytes) -> AsyncGenerator[bytes]:
    yield frames


async def _until_over(pieces: AsyncGenerator[bytes], translator: ResponseWriter) -> AsyncGenerator[bytes]:
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece
            if translator.is_over:
                return


async def _stored(
    context: RequestContext, run: Run, seq: int, *, after: int | None = None
) -> tuple[ResponseWriter, Run, bytes, bool]:
    """The response, the run as it was at the response's end, the events of its stream, and whether
    the run had a later message since.

    A response begins with the run's first message after `seq`, and ends with its next one; messages that the run has
    read within its turn end none.
    """
    reply = ResponseWriter(run, response_id=context.path["response_id"], after=after)
    reader = StepReader()
    key = run.session_key
    frames = list[bytes]()
    is_followed = False
    at = seq
    messages = 0
    page_size = PAGE_LIMIT

    while messages < 2 and page_size == PAGE_LIMIT:
        page = await context.sessions.list_events(**key._asdict(), after=at, limit=PAGE_LIMIT)
        page_size = len(page.events)
        for number, event in enumerate(page.events, at + 1):
            if event.invocation_id != run.id:
                continue
            if event.author == "user" and (messages == 0 or not is_steering(event)):
                messages += 1
                if messages == 2:
                    break
                is_followed = number <= run.message_after_seq
            frames += map(reply.frames, reader.read(event))

        at += page_size

    run = replace(run, usage=reader.usage, **({"status": RunStatus.WAITING, "error": None} if is_followed else {}))
    frames.append(reply.frames(RunEnded(run)))
    return reply, run, b"".join(frames), is_followed


async def cancel_response(context: RequestContext) -> AnyReply:
    run, seq = await _find(context, context.path["response_id"])
    run = await context.engine.cancel(run.id, reason="requested by a client")
    reply, run = (await _stored(context, run, seq))[:2]
    return Reply(value=reply.response(run))


async def _find(context: RequestContext, response_id: str) -> tuple[Run, int]:
    """The run of a response, and the sequence number before its message. Raises RunNotFound."""
    match = _ID.fullmatch(response_id)
    if match is None:
        raise RunNotFound(response_id)
    run = await context.engine.get(match["run"])
    if run.steered_into is not None and run.read_at_seq is not None:
        return await context.engine.get(run.steered_into), run.read_at_seq - 1
    return run, int(match["seq"])


def _strategy(body: ResponsesRequest) -> MultitaskStrategy:
    """Raises InvalidRequest."""
    given = (body.metadata or {}).get("multitask_strategy", "enqueue")
    try:
        return msgspec.convert(given, MultitaskStrategy)
    except msgspec.ValidationError as error:
        raise InvalidRequest(str(error), location=("body", "metadata", "multitask_strategy")) from None


async def _run_of(context: RequestContext, body: ResponsesRequest) -> tuple[AgentRunRequest, NewSession | None]:
    """The request, and the session to create."""
    user_id = body.user or context.identity.subject
    conversation_id = body.conversation.id if isinstance(body.conversation, Conversation) else body.conversation
    items = body.input
    previous = body.previous_response_id
    if previous is not None and conversation_id is not None:
        raise InvalidRequest("Give either previous_response_id or conversation", location=("body",))
    if (
        not isinstance(items, str)
        and previous is None
        and conversation_id is None
        and (previous := _referenced_in(items))
    ):
        newest = next(at for at in range(len(items), 0, -1) if is_from_agent(items[at - 1]))
        items = items[newest:]
    if previous is not None:
        before, _ = await _find(context, previous)
        if before.app_name != body.model:
            detail = f"That response is of the model {before.app_name!r}"
            raise InvalidRequest(detail, location=("body", "previous_response_id"))
        key = SessionKey(before.app_name, body.user or before.user_id, before.session_id)
    elif conversation_id:
        key = SessionKey(body.model, user_id, conversation_id)
    else:
        key = context.new_session_key(lambda new_id: SessionKey(body.model, user_id, new_id))
    session = await find_session(context, key)
    contents = contents_of(items, session)
    client_tools = declarations_of(body.tools)

    new_session: NewSession | None = None
    if session is None:
        history, parts = split_conversation(contents, client_tools)
        if body.instructions:
            history.insert(0, Content(role="user", parts=[Part(text=body.instructions)]))
        new_session = NewSession(history)
        message = new_message(parts, history)
    else:
        from_user = (content for content in contents if content.role == "user")
        message = new_message(part for content in from_user for part in content.parts or ())

    metadata: JsonObject = {**(body.metadata or {})}
    request = AgentRunRequest(
        **key._asdict(),
        new_message=message,
        streaming=bool(body.stream),
        client_tools=client_tools,
        multitask_strategy=_strategy(body),
        start_at=seconds(metadata, "start_at", location=("body", "metadata")),
        delay_seconds=seconds(metadata, "delay_seconds", location=("body", "metadata")),
    )
    return request, new_session


def _referenced_in(items: list[JsonObject]) -> str | None:
    """The response of the last item that is given by its id only."""
    ids = (_ITEM_ID.fullmatch(str(item.get("id"))) for item in reversed(items) if item.get("type") == "item_reference")
    return next((f"resp_{found['response']}" for found in ids if found), None)
