"""10,000 idle connections, half of them with an unfinished request, at a server that keeps working.

    python -m benchmarks.idle_sockets [NUMBER]

Prints how long a run takes before and during, what each connection costs in memory, and that all are closed in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

AGENT = """
from greenroom import LlmAgent
from greenroom.testing import ScriptedModel

root_agent = LlmAgent(name="echo", model=ScriptedModel(lambda request: "hello"))
"""
BODY = {"appName": "echo", "userId": "ann", "sessionId": "s", "newMessage": {"parts": [{"text": "hi"}]}}


async def main(number: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "echo").mkdir()
        (Path(folder) / "echo/agent.py").write_text(AGENT)
        command = [sys.executable, "-m", "greenroom", "serve", folder, "--port", "0", "--session-service", "memory://"]
        server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            url = await _address(server)
            await _measure(url, server.pid, number)
        finally:
            with contextlib.suppress(ProcessLookupError):
                server.terminate()
            await server.wait()


async def _address(server: asyncio.subprocess.Process) -> str:
    assert server.stdout is not None
    while b"web page" not in (line := await server.stdout.readline()):
        if not line:
            raise RuntimeError("the server did not start")
    url = line.decode().split()[-1].rstrip("/")
    while b"Ctrl-C" not in await server.stdout.readline():
        pass
    return url


async def _measure(url: str, pid: int, number: int) -> None:
    await asyncio.to_thread(_post, f"{url}/apps/echo/users/ann/sessions", {"sessionId": "s"})
    quiet = await asyncio.to_thread(_run_milliseconds, url)
    before = _resident_bytes(pid)
    host, port = url.removeprefix("http://").split(":")
    started = time.monotonic()
    idle = [_connected(host, int(port), is_half=index % 2 == 0) for index in range(number)]
    print(f"{number} connections opened in {time.monotonic() - started:.1f} s")
    busy = await asyncio.to_thread(_run_milliseconds, url)
    during = _resident_bytes(pid)
    print(f"a run takes {quiet:.1f} ms before, {busy:.1f} ms during (medians of 50)")
    print(f"each connection costs {(during - before) / number / 1024:.1f} KiB")
    loop = asyncio.get_running_loop()
    closed = await asyncio.gather(*(_is_closed(loop, one) for one in idle))
    print(
        f"{sum(closed)} of them were closed by the server, the last {time.monotonic() - started:.1f} s after the start"
    )
    print(f"a run takes {await asyncio.to_thread(_run_milliseconds, url):.1f} ms afterwards")


def _connected(host: str, port: int, *, is_half: bool) -> socket.socket:
    one = socket.create_connection((host, port), timeout=10)
    if is_half:
        one.send(b"POST /run HTTP/1.1\r\nhost: localhost\r\n")
    one.setblocking(False)
    return one


async def _is_closed(loop: asyncio.AbstractEventLoop, one: socket.socket) -> bool:
    try:
        async with asyncio.timeout(60):
            while await loop.sock_recv(one, 4096):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    finally:
        one.close()
    return True


def _run_milliseconds(url: str) -> float:
    taken: list[float] = []
    for _ in range(50):
        started = time.perf_counter()
        _post(f"{url}/run", BODY)
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)


def _post(url: str, body: Mapping[str, object]) -> None:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        reply.read()


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
