"""The WebSocket handler of live runs: queues the client's requests and sends the run's events."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from greenroom.errors import GreenroomError, InvalidRequest, OwnershipLost, RunCancelled
from greenroom.event_streams.stream import RunEnded, StreamItem
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob
from greenroom.records.event import Event
from greenroom.records.model_exchange import LiveRequest
from greenroom.records.run import Run, RunConfig
from greenroom.records.session import SessionKey
from greenroom.runner.accept import check_is_of_one_kind, checked_message
from greenroom.runs.engine import Attachment
from greenroom.server.replies import AnyReply, SocketReply, problem
from greenroom.server.request_body import decode_limited
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import RUN_ID_HEADER
from greenroom.server.settings import LimitSettings
from greenroom.server.websocket import Socket

NORMAL = 1000
FAILED = 1011
RESTARTING = 1012

Modality = Literal["TEXT", "AUDIO", "VIDEO"]

MICROPHONE = "audio/pcm;rate=16000"
_MEDIA_TYPE = re.compile(r"(?:audio|video|image)/[\w.+-]+(?:;[\w.+-]+=[\w.+-]+)*")
_CAMEL = {re.sub(r"_(\w)", lambda m: m[1].upper(), name): name for name in LiveRequest.__struct_fields__}


async def run_live(context: RequestContext) -> AnyReply:
    """Receives LiveRequests in text frames and audio in binary frames; sends events in text frames."""
    query = context.query
    app_name = query["app_name"] or await context.default_app()
    for name in ("user_id", "session_id"):
        if not query[name]:
            raise InvalidRequest(f"{name} is missing", location=("query", name), kind="missing")

    media_type: str = query["binary_mime_type"]
    if not _MEDIA_TYPE.fullmatch(media_type):
        detail = "binary_mime_type must be one of audio, video or images, as audio/pcm;rate=16000"
        raise InvalidRequest(detail, location=("query", "binary_mime_type"))

    key = SessionKey(app_name, query["user_id"], query["session_id"])
    requests = LiveRequestQueue()
    run, attachment = await context.engine.start_live(
        key,
        requests,
        run_config=_run_config(query),
        after=query["after"],
        traceparent=context.headers.get("traceparent"),
    )
    return SocketReply(talk=partial(_exchange_messages, context, run, attachment, requests, media_type))


def _run_config(query: Any) -> RunConfig:
    proactivity: JsonObject | None = None
    if query["proactive_audio"] is not None:
        proactivity = {"proactiveAudio": query["proactive_audio"]}

    return RunConfig(
        response_modalities=query["modalities"],
        proactivity=proactivity,
        enable_affective_dialog=query["enable_affective_dialog"],
        session_resumption={} if query["enable_session_resumption"] else None,
        explicit_vad_signal=query["explicit_vad_signal"],
        save_live_blob=query["save_live_blob"],
    )


async def _exchange_messages(
    context: RequestContext,
    run: Run,
    attachment: Attachment,
    requests: LiveRequestQueue,
    media_type: str,
    socket: Socket,
) -> None:
    """Runs until either side ends. When the client disconnects, running tools finish and the run ends."""
    tasks: list[asyncio.Task[Any]] = []
    try:
        await socket.accept({RUN_ID_HEADER: quote(run.id, safe="")})
        receiving = asyncio.create_task(_receive_requests(socket, requests, media_type, context.settings.limits))
        sending = asyncio.create_task(
            _send_events(socket, attachment, run.id, with_typed=context.query["after"] is not None)
        )
        tasks += [receiving, sending]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)

        if sending.done():
            await socket.close(*_close_code(sending.result()))
        elif context.settings.on_disconnect == "cancel":
            await context.engine.cancel(run.id, reason="the client disconnected")
        else:
            receiving.result()
    finally:
        requests.close()
        attachment.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _receive_requests(socket: Socket, requests: LiveRequestQueue, media_type: str, limits: LimitSettings) -> None:
    """Receives requests with backpressure from the model. Raises ClientGone."""
    while True:
        message = await socket.receive()
        try:
            if isinstance(message, bytes):
                request = LiveRequest(blob=Blob(data=message, mime_type=media_type))
            else:
                request = decode_limited(message.encode(), decode_request, limits)
        except GreenroomError as error:
            document = problem(error.code, error.status, error.detail)
            await socket.send(wire.encode({"error": f"{error.code}: {error.detail}", "details": document}))
            continue

        requests.send(request)
        await requests.drain()


def decode_request(text: bytes) -> LiveRequest:
    """Decodes a frame with snake_case (ADK) or camelCase names. Raises InvalidRequest."""
    try:
        plain: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequest(f"The frame is not JSON: {error}", location=("frame",), kind="json_invalid") from None

    if not isinstance(plain, dict):
        raise InvalidRequest("The frame must be a JSON object", location=("frame",))

    frame: JsonObject = {_CAMEL.get(name, name): value for name, value in plain.items()}  # pyright: ignore
    request = wire.from_plain(frame, LiveRequest)
    if request.blob is not None and not (request.blob.data and request.blob.mime_type):
        raise InvalidRequest("A blob needs data and mime_type", location=("frame", "blob"))
    if request.content is not None and not request.content.parts:
        raise InvalidRequest("The message has no parts", location=("frame", "content", "parts"))

    check_is_of_one_kind(request.content)
    request.content = checked_message(request.content)
    return request


async def _send_events(
    socket: Socket, attachment: Attachment, run_id: str, *, with_typed: bool
) -> RunEnded | OwnershipLost:
    """Sends events until the run ends, or is lost. with_typed: also the messages that the client typed, which it may
    have lost."""
    while True:
        try:
            batch = await attachment.next_batch()
        except OwnershipLost as error:
            return error
        for item in batch:
            if isinstance(item, StreamItem):
                if (with_typed or not _was_typed(item.event)) and not item.event.is_internal():
                    await socket.send(_frame(item))
            elif item.run_id == run_id:
                return item


def _frame(item: StreamItem) -> bytes:
    """The event's JSON; stored events begin with their `seq`, which resumes the log when sent as `after`."""
    if item.seq is None:
        return item.json
    return b'{"seq":%d,%b' % (item.seq, item.json[1:])


def _was_typed(event: Event) -> bool:
    if event.author != "user" or event.input_transcription is not None:
        return False
    return not any(part.file_data is not None for part in (event.content.parts if event.content else None) or ())


def _close_code(ended: RunEnded | OwnershipLost) -> tuple[int, str]:
    if isinstance(ended, OwnershipLost):
        return RESTARTING, ended.detail
    error = ended.run.error
    if error is None or error.code == RunCancelled.__name__:
        return NORMAL, error.message if error is not None else ""
    return FAILED, error.message
