"""Cost of a turn through each gate, beside the same turn through `/run_sse`."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from itertools import count
from typing import Any

from benchmarks.bench import Bench
from benchmarks.report import Figure, Table, Target
from greenroom.agents.llm_agent import LlmAgent
from greenroom.server.application import GreenroomApp, create_app
from greenroom.server.settings import ServerSettings
from greenroom.testing.scripted_model import ScriptedModel

CHUNKS = 200
TURNS_PER_ROUND = 30
LOCAL = [(b"content-type", b"application/json"), (b"host", b"localhost"), (b"a2a-version", b"1.0")]
PEER = "/run_sse"
_numbers = count()


def _requests() -> dict[str, tuple[str, dict[str, Any]]]:
    """The same message to a new session, by the name of the interface."""
    session = f"s-{next(_numbers)}"
    message = {"role": "user", "content": "x"}
    content = {"role": "user", "parts": [{"text": "x"}]}
    names = {"appName": "echo", "userId": "u", "sessionId": session}
    sent = {"message": {"messageId": "m", "contextId": session + "t", "role": "ROLE_USER", "parts": content["parts"]}}
    return {
        PEER: ("/run_sse", {**names, "streaming": True, "newMessage": content}),
        "A2A": ("/a2a/echo", {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": sent}),
        "AG-UI": ("/ag-ui/echo", {"threadId": session + "a", "runId": session, "messages": [{"id": "1", **message}]}),
        "Chat Completions": (
            "/v1/chat/completions",
            {"model": "echo", "stream": True, "messages": [message], "metadata": {"session_id": session + "c"}},
        ),
        "Responses": ("/v1/responses", {"model": "echo", "stream": True, "input": "x", "conversation": session + "r"}),
    }


async def _post(app: GreenroomApp, path: str, body: dict[str, Any]) -> None:
    messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Any:
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        if message.get("status", 200) != 200:
            raise RuntimeError(f"{path} answered {message['status']}")

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": LOCAL, "client": ("127.0.0.1", 1), "scheme": "http", "http_version": "1.1",
    }  # fmt: skip
    await app(scope, receive, send)


async def gates(bench: Bench) -> list[Table]:
    figures: list[Figure] = []
    for chunks in (1, CHUNKS):
        text = " ".join(["word"] * chunks)
        agent = LlmAgent(name="echo", model=ScriptedModel(lambda _, text=text: text))
        settings = ServerSettings(gates=("a2a", "ag_ui", "openai"), auto_create_session=True)
        app = create_app(agents=[agent], settings=settings)
        rounds: dict[str, list[float]] = {name: [] for name in _requests()}
        for number in range(-1, bench.scale.rounds):
            taken: dict[str, list[float]] = {name: [] for name in rounds}
            for _ in range(TURNS_PER_ROUND):
                for name, (path, body) in _requests().items():
                    began = time.process_time()
                    await _post(app, path, body)
                    taken[name].append((time.process_time() - began) * 1e3)
            if number >= 0:
                for name, values in taken.items():
                    rounds[name].append(statistics.median(values))
        await app.engine.close()
        for name in rounds.keys() - {PEER}:
            label = f"{name}: CPU of a turn of {chunks} chunk" + "s" * (chunks > 1)
            target = Target(times_better=1 / 1.5)
            figures.append(Figure(label, "ms", rounds[PEER], rounds[name], target=target))
    figures.sort(key=lambda figure: figure.label)
    notes = [f"In process, in memory, {TURNS_PER_ROUND} turns of each in a round, in turn. Wanted: 1.5 times the CPU."]
    return [Table("Turns through gates", figures, notes, peer_name=PEER)]
