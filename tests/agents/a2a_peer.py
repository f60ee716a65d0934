"""A server of the A2A SDK, whose agent does what the message says."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx
from a2a.helpers.proto_helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, Message, Part, TaskState
from google.protobuf.json_format import ParseDict
from starlette.applications import Starlette

URL = "http://localhost:7000"


def card(binding: str = "JSONRPC", *, url: str = URL, streaming: bool = True, version: str = "1.0") -> AgentCard:
    return AgentCard(
        name="peer",
        description="Books tables.",
        version="1",
        supported_interfaces=[AgentInterface(url=url, protocol_binding=binding, protocol_version=version)],
        capabilities=AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
    )


class PeerAgent(AgentExecutor):
    """received: the messages. go: ends a task that waits. cancelled: ids of tasks."""

    def __init__(self) -> None:
        self.received: list[Message] = []
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.cancelled: list[str] = []

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        message = context.message
        assert message is not None
        self.received.append(message)
        text = context.get_user_input()
        if text == "message":
            reply = new_text_message("just a message")
            reply.context_id = context.context_id or ""
            await event_queue.enqueue_event(reply)
            return
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)

        def said(words: str, **metadata: Any) -> Message:
            return updater.new_agent_message([Part(text=words)], metadata or None)

        await updater.start_work(said("thinking"))
        self.begun.set()
        if "wait" in text:
            await updater.add_artifact([Part(text="half ")], artifact_id="a", append=False, last_chunk=False)
            await self.go.wait()
            await updater.add_artifact([Part(text="done")], artifact_id="a", append=True, last_chunk=True)
        elif "ask" in text:
            await updater.requires_input(said("Which day?"))
            return
        elif "log in" in text:
            await updater.requires_auth(said("Please log in."))
            return
        elif "confirm" in text:
            part = Part(metadata=ParseDict({"adk_type": "function_call", "adk_is_long_running": True}, Part().metadata))
            call = {"id": "r-1", "name": "adk_request_confirmation", "args": {"toolConfirmation": {"hint": "Pay 5?"}}}
            ParseDict(call, part.data)
            await updater.requires_input(updater.new_agent_message([part]))
            return
        elif "fail" in text:
            await updater.failed(said("no table left"))
            return
        elif "escalate" in text:
            await updater.complete(said("enough", adk_actions={"escalate": True, "stateDelta": {"admin": True}}))
            return
        elif "file" in text:
            await updater.add_artifact([Part(raw=b"\x89PNG", media_type="image/png", filename="plan.png")])
            ParseDict({"seats": 4}, (seats := Part()).data)
            await updater.add_artifact([seats])
        else:
            for number, word in enumerate(("You ", "said: ", text)):
                last = number == 2
                await updater.add_artifact([Part(text=word)], artifact_id="a", append=number > 0, last_chunk=last)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task
        assert task is not None
        self.cancelled.append(task.id)
        self.go.set()
        await TaskUpdater(event_queue, task.id, task.context_id).update_status(TaskState.TASK_STATE_CANCELED)


class Peer:
    """The server in process, reached through an httpx client of its own."""

    def __init__(self, served: AgentCard | None = None, *, store: TaskStore | None = None) -> None:
        self.card = served or card()
        self.agent = PeerAgent()
        self.handler = DefaultRequestHandler(
            agent_executor=self.agent, task_store=store or InMemoryTaskStore(), agent_card=self.card
        )
        routes = [
            *create_agent_card_routes(self.card),
            *create_jsonrpc_routes(self.handler, rpc_url="/", enable_v0_3_compat=True),
            *create_rest_routes(self.handler),
        ]
        self.requests: list[httpx.Request] = []
        self.app = Starlette(routes=routes)
        self.http = httpx.AsyncClient(transport=_Recording(self, StreamingAsgi(self.app)))


class _Recording(httpx.AsyncBaseTransport):
    def __init__(self, peer: Peer, inner: httpx.AsyncBaseTransport) -> None:
        self._peer, self._inner = peer, inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._peer.requests.append(request)
        return await self._inner.handle_async_request(request)


class StreamingAsgi(httpx.AsyncBaseTransport):
    """httpx's own transport for ASGI apps reads a response to its end first. cut_after: ends the body of the next
    stream after that many chunks, as a lost connection does."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.cut_after: int | None = None
        self.cut_cleanly = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        sent: asyncio.Queue[Any] = asyncio.Queue()
        is_received = False
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            nonlocal is_received
            if is_received:
                await gone.wait()
                return {"type": "http.disconnect"}
            is_received = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            await sent.put(message)

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": request.method,
            "scheme": request.url.scheme, "path": request.url.path, "raw_path": request.url.raw_path,
            "query_string": request.url.query, "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": (request.url.host, 80), "client": ("127.0.0.1", 1), "state": {},
        }  # fmt: skip

        async def run() -> None:
            try:
                await self._app(scope, receive, send)
            finally:
                await sent.put(None)

        task = asyncio.create_task(run())
        start = await sent.get()
        if start is None:
            await task
            raise httpx.ReadError("no response")
        cut_after, self.cut_after = self.cut_after, None
        return httpx.Response(
            start["status"], headers=start["headers"], stream=_Body(sent, task, gone, cut_after, self.cut_cleanly)
        )


class _Body(httpx.AsyncByteStream):
    def __init__(self, sent: Any, task: Any, gone: asyncio.Event, cut_after: int | None, cleanly: bool) -> None:
        self._sent, self._task, self._gone = sent, task, gone
        self._cut_after, self._cleanly = cut_after, cleanly

    async def __aiter__(self):
        count = 0
        while (message := await self._sent.get()) is not None:
            if message.get("body"):
                count += 1
                yield message["body"]
            if count == self._cut_after:
                if not self._cleanly:
                    raise httpx.ReadError("the connection was lost")
                return
            if not message.get("more_body"):
                return

    async def aclose(self) -> None:
        self._gone.set()
        self._task.cancel()
        with contextlib.suppress(BaseException):
            await self._task
