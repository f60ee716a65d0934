from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from greenroom.server.settings import ServeSettings
from tests.cli.conftest import PARROT, Cli


@contextmanager
def served(cli: Cli, *args: str, port: int = 0) -> Generator[tuple[str, str, subprocess.Popen[str]]]:
    """The server's address, and what it said at its start."""
    process = cli.start("serve", *args, "--port", str(port))
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        else:
            raise AssertionError(process.communicate(timeout=10))
        url = next(line.split()[-1] for line in said.splitlines() if "web page" in line)
        yield url.rstrip("/"), said, process
    finally:
        process.kill()
        process.communicate()


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)


def say(url: str, session_id: str, text: str) -> str:
    message = {"role": "user", "parts": [{"text": text}]}
    body = {"appName": "parrot", "userId": "ada", "sessionId": session_id, "newMessage": message}
    return post(f"{url}/run", body)[-1]["content"]["parts"][0]["text"]


def test_apps_are_served_and_sessions_survive_a_restart(cli: Cli) -> None:
    cli.write("agents/broken/agent.py", "1 / 0")
    for expected in ("first ", "second "):
        with served(cli, "agents") as (url, said, process):
            assert "broken  failed to load: ZeroDivisionError: division by zero (broken/agent.py:1)" in said
            assert "parrot\n" in said
            with urllib.request.urlopen(f"{url}/list-apps", timeout=10) as reply:
                assert json.load(reply) == ["broken", "parrot"]
                assert "server" not in {name.lower() for name in reply.headers}
            if expected == "first ":
                post(f"{url}/apps/parrot/users/ada/sessions/s1", {})
            assert say(url, "s1", expected.strip()) == expected
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
    assert {path.name for path in (cli.folder / "agents" / ".greenroom").iterdir()} >= {
        ".gitignore",
        "artifacts",
        "greenroom.db",
    }

    listed = cli("sessions", "list", "agents")
    assert listed.stdout.splitlines()[1].split()[:3] == ["parrot", "ada", "s1"]
    shown = cli("sessions", "show", "s1", "agents")
    assert shown.stdout == "first\nfirst \nsecond\nsecond \n"


def test_apps_are_served_from_build_outputs(cli: Cli) -> None:
    cli.write("packages/bot/out/built/agent.py", PARROT)
    with served(cli, "agents", "--source-dir", "packages", "--build-output-dirs", "out", "dist") as (url, said, _):
        assert "built\n" in said
        with urllib.request.urlopen(f"{url}/list-apps", timeout=10) as reply:
            assert json.load(reply) == ["built"]


def test_an_endless_import_blocks_neither_other_apps_nor_the_stop(cli: Cli) -> None:
    with served(cli, "agents", "--grace-seconds", "0") as (url, _, process):
        post(f"{url}/apps/parrot/users/ada/sessions/s1", {})
        cli.write("agents/stuck/agent.py", "import threading\nprint('began', flush=True)\nthreading.Event().wait()")
        assert process.stdout is not None
        assert "began" in [process.stdout.readline().strip() for _ in range(2)]
        with pytest.raises(TimeoutError):
            urllib.request.urlopen(f"{url}/apps/stuck/app-info", timeout=0.5)
        assert say(url, "s1", "hello") == "hello "
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server_with_success(cli: Cli, number: signal.Signals) -> None:
    with served(cli, "agents", "--session-service", "memory://") as (_, _, process):
        process.send_signal(number)
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 0
    assert errors == ""


def test_a_stop_ends_streams_that_have_no_end(cli: Cli) -> None:
    with served(cli, "agents", "--gates", "mcp", "--grace-seconds", "60") as (url, _, process), ExitStack() as streams:
        session = f"{url}/apps/parrot/users/ada/sessions/s1"
        post(session, {})
        say(url, "s1", "hello")
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
        accepted = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        with urllib.request.urlopen(urllib.request.Request(f"{url}/mcp", call, accepted), timeout=30) as reply:
            of_mcp = {"accept": "text/event-stream", "mcp-session-id": reply.headers["mcp-session-id"]}
        mcp_stream = streams.enter_context(urllib.request.urlopen(urllib.request.Request(f"{url}/mcp", None, of_mcp)))
        opened: dict[str, Any] = {}
        for path in ("/runs", "/requests", "/apps/parrot/users/ada/sessions/s1/events", "/apps/parrot/logs"):
            request = urllib.request.Request(url + path, headers={"accept": "text/event-stream"})
            opened[path] = streams.enter_context(urllib.request.urlopen(request, timeout=30))
            assert opened[path].readline()
        process.send_signal(signal.SIGTERM)
        last = {path: stream.read().decode().strip().splitlines()[-1] for path, stream in opened.items()}
        assert not mcp_stream.read()
        _, errors = process.communicate(timeout=10)
    assert process.returncode == 0
    assert all(line.split()[2] == "INFO" for line in errors.splitlines()), errors
    assert last.pop("/apps/parrot/users/ada/sessions/s1/events").startswith(": the stream ends here; resume with Last-")
    assert set(last.values()) == {": the server is stopping"}


def test_an_idle_connection_is_closed_after_the_configured_time(cli: Cli) -> None:
    with served(cli, "agents", "--idle-connection-seconds", "1.5") as (url, _, _):
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as idle:
            idle.sendall(b"GET /version HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert idle.recv(1000).startswith(b"HTTP/1.1 200")
            answered = time.monotonic()
            while idle.recv(1000):
                pass
            assert time.monotonic() - answered > 1
    assert ServeSettings().idle_connection_seconds == 75


_STUBBORN = """
import asyncio
from greenroom import LlmAgent
from greenroom.records.content import FunctionCall
from greenroom.testing.scripted_model import ScriptedModel


async def stall() -> str:
    "Ignores its cancellation."
    open("stalling", "w").close()
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


def ask(request):
    is_answered = any(part.function_response for part in request.contents[-1].parts)
    return "done" if is_answered else FunctionCall(id="c-1", name="stall", args={})


root_agent = LlmAgent(name="stubborn", model=ScriptedModel(ask), tools=[stall])
"""


def test_a_tool_that_ignores_its_cancellation_is_abandoned_after_one_grace_time(cli: Cli) -> None:
    cli.write("agents/stubborn/agent.py", _STUBBORN)
    with served(cli, "agents", "--grace-seconds", "4") as (url, _, process):
        post(f"{url}/apps/stubborn/users/ada/sessions/s1", {})
        body = {"newMessage": {"role": "user", "parts": [{"text": "go"}]}}
        run_id = post(f"{url}/apps/stubborn/users/ada/sessions/s1/runs", body)["id"]
        _wait_for_file(cli, "stalling")
        with urllib.request.urlopen(f"{url}/runs/{run_id}/events?after=0", timeout=30):
            started = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        assert time.monotonic() - started < 8, "the grace time counted twice"
    with served(cli, "agents") as (url, _, _):
        deadline = time.monotonic() + 10
        while _get(f"{url}/runs/{run_id}")["status"] == "running" and time.monotonic() < deadline:
            time.sleep(0.05)
        run = _get(f"{url}/runs/{run_id}")
        assert (run["attempts"], run["status"]) == (2, "succeeded")


_SLOW = """
import asyncio
from greenroom import LlmAgent
from greenroom.records.content import FunctionCall
from greenroom.testing.scripted_model import ScriptedModel


async def wait(name: str) -> None:
    open(name, "w").close()
    await asyncio.sleep(3600)


def ask(request):
    return FunctionCall(id="c-1", name="wait", args={"name": request.contents[-1].parts[0].text})


root_agent = LlmAgent(name="slow", model=ScriptedModel(ask), tools=[wait])
"""


def test_a_stopping_server_sends_waiting_clients_the_address_of_their_runs(cli: Cli) -> None:
    """Defect F6."""
    cli.write("agents/slow/agent.py", _SLOW)

    def run(url: str, endpoint: str) -> tuple[int, Any, bytes]:
        post(f"{url}/apps/slow/users/ada/sessions/{endpoint}", {})
        message = {"role": "user", "parts": [{"text": endpoint}]}
        body = {"appName": "slow", "userId": "ada", "sessionId": endpoint, "newMessage": message}
        request = urllib.request.Request(
            f"{url}/{endpoint}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    with (
        ThreadPoolExecutor() as threads,
        served(cli, "agents", "--grace-seconds", "0") as (url, _, process),
    ):
        waiting = {endpoint: threads.submit(run, url, endpoint) for endpoint in ("run", "run_sse")}
        for endpoint in waiting:
            _wait_for_file(cli, endpoint)
        process.send_signal(signal.SIGTERM)
        status, headers, body = waiting["run"].result(30)
        streamed = waiting["run_sse"].result(30)[2]
        _, said = process.communicate(timeout=30)
    assert (status, headers["content-type"], headers["retry-after"]) == (503, "application/problem+json", "1")
    assert f"/runs/{headers['x-run-id']}/events" in json.loads(body)["detail"]
    last = streamed.decode().strip().rpartition("\n\n")[2]
    assert "The stream ends here; the run continues." in last
    assert "Traceback" not in (said or "")


_SLOW_TO_CLEAN_UP = """
import sys
import time

from greenroom import LlmAgent


class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(1.5)


sys.slow = Slow()  # until the interpreter ends
root_agent = LlmAgent(name="slow", model="unused")
"""


def test_a_stop_succeeds_though_the_interpreter_takes_its_time_to_end(cli: Cli) -> None:
    """The alarm that ends a server in which work hangs must not kill it when it has ended its work."""
    cli.write("agents/slow/agent.py", _SLOW_TO_CLEAN_UP)
    with served(cli, "agents", "--grace-seconds", "0") as (url, _, process):
        with urllib.request.urlopen(f"{url}/apps/slow/app-info", timeout=30) as reply:
            assert reply.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)


_JOB = """
from greenroom import LlmAgent, LongRunningFunctionTool
from greenroom.records.content import FunctionCall
from greenroom.testing.scripted_model import ScriptedModel


def job():
    pass


def ask(request):
    responses = [part.function_response for content in request.contents for part in content.parts]
    is_answered = any(one is not None and "rows" in one.response for one in responses)
    return "WORDS" if is_answered else FunctionCall(id="c-1", name="job", args={})


root_agent = LlmAgent(name="job", model=ScriptedModel(ask), tools=[LongRunningFunctionTool(job)])
"""


def test_a_waiting_run_continues_with_changed_code_under_its_new_version(cli: Cli) -> None:
    """Defect R10."""
    cli.write("agents/job/agent.py", _JOB.replace("WORDS", "old"))
    with served(cli, "agents") as (url, _, _):
        post(f"{url}/apps/job/users/ada/sessions/s1", {})
        run_id = post(f"{url}/apps/job/users/ada/sessions/s1/runs", _message({"text": "go"}))["id"]
        before = _run_with_status(url, run_id, "waiting")
    cli.write("agents/job/agent.py", _JOB.replace("WORDS", "new"))
    with served(cli, "agents") as (url, _, _):
        answer = {"functionResponse": {"id": "c-1", "name": "job", "response": {"rows": 7}}}
        assert post(f"{url}/apps/job/users/ada/sessions/s1/runs", _message(answer))["id"] == run_id
        after = _run_with_status(url, run_id, "succeeded")
        session = _get(f"{url}/apps/job/users/ada/sessions/s1")
    assert before["appVersion"]
    assert before["appVersion"] != after["appVersion"]
    assert session["events"][-1]["content"]["parts"][0]["text"] == "new"


def _message(part: dict[str, Any]) -> dict[str, Any]:
    return {"newMessage": {"role": "user", "parts": [part]}}


def _run_with_status(url: str, run_id: str, status: str) -> Any:
    deadline = time.monotonic() + 10
    while (run := _get(f"{url}/runs/{run_id}"))["status"] != status:
        assert time.monotonic() < deadline, run
        time.sleep(0.02)
    return run


def test_a_server_stops_during_an_endless_import(cli: Cli) -> None:
    with served(cli, "agents", "--grace-seconds", "0") as (url, _, process):
        post(f"{url}/apps/parrot/users/ada/sessions/s1", {})
        cli.write("agents/parrot/agent.py", "open('importing', 'w').close()\nwhile True: pass")
        message = {"role": "user", "parts": [{"text": "hello"}]}
        data = json.dumps({"appName": "parrot", "userId": "ada", "sessionId": "s1", "newMessage": message}).encode()
        head = f"POST /run HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(data)}"
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
            deadline = time.monotonic() + 10
            while not (cli.folder / "importing").exists():  # a change of the file is noticed after a while
                client.sendall(f"{head}\r\n\r\n".encode() + data)
                assert time.monotonic() < deadline
                time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_a_second_server_on_the_same_database_is_refused(cli: Cli) -> None:
    with served(cli, "agents") as (_, _, process):
        done = cli.run_process("serve", "agents", "--port", "0")
        assert done.returncode == 1
        assert f"is in use by the server with process id {process.pid}" in done.stderr
        assert cli("sessions", "list", "agents").returncode == 0


def _wait_for_file(cli: Cli, name: str) -> None:
    deadline = time.monotonic() + 10
    while not (cli.folder / name).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as reply:
        return json.load(reply)


def test_a_port_in_use_is_reported(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = cli.run_process("serve", "agents", "--port", str(port))
    assert done.returncode == 1
    assert done.stderr == f"Port {port} on 127.0.0.1 is in use. Use another one (--port {port + 1})\n"


def test_invalid_arguments_are_reported_before_the_server_starts(cli: Cli) -> None:
    assert cli.run_process("serve", "nowhere").stderr == "There is no folder 'nowhere' to find apps in\n"
    done = cli.run_process("serve", "agents", "--port", "0", "--session-service", "mysql://x")
    assert done.returncode == 1
    assert done.stderr.startswith("Unknown session store: 'mysql://x'")


def test_a_store_that_cannot_be_opened_is_reported_in_one_line(cli: Cli) -> None:
    cli.write("folder/file", "")
    done = cli.run_process("serve", "agents", "--port", "0", "--session-service", "sqlite:///folder")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_data_folder_that_cannot_be_created_is_reported(cli: Cli) -> None:
    cli.write("agents/.greenroom", "a file is in the way")
    done = cli.run_process("serve", "agents", "--port", "0")
    assert done.returncode == 1
    assert "Choose other stores with --session-service and --artifact-service" in done.stderr


def test_an_empty_folder_is_served_with_a_hint(cli: Cli) -> None:
    cli.write("empty/readme.txt", "")
    with served(cli, "empty", "--session-service", "memory://") as (_, said, _):
        assert "There are no apps in empty yet" in said


def test_allowed_origins_may_call_the_server(cli: Cli) -> None:
    with served(cli, "agents", "--allow-origins", "https://a.example", "https://b.example") as (url, _, _):
        request = urllib.request.Request(f"{url}/list-apps", headers={"origin": "https://b.example"})
        with urllib.request.urlopen(request, timeout=10) as reply:
            assert reply.headers["access-control-allow-origin"] == "https://b.example"


def test_the_welcome_text_has_the_url_prefix(cli: Cli) -> None:
    with served(cli, "agents", "--url-prefix", "/agents") as (url, said, _):
        assert url.endswith("/agents")
        assert f"{url}/docs\n" in said
        with urllib.request.urlopen(f"{url}/", timeout=10) as page:
            assert page.url == f"{url}/dev-ui/"
        post(f"{url}/apps/parrot/users/ada/sessions", {"sessionId": "s-1"})
        assert say(url, "s-1", "hello") != ""
    with served(cli, "agents", "--url-prefix", "https://example.com/agents") as (url, _, _):
        assert url == "https://example.com/agents"
