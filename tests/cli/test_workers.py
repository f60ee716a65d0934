"""Workers of `greenroom serve` without a database: settings that exclude them, their channel, addresses and delays."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from greenroom.cli.worker import replica_listener
from greenroom.cli.worker_channel import Channel, Connection, Message, Ready, Received, channel_sockets
from greenroom.cli.workers import restart_delay, usable_cpus, worker_count
from greenroom.errors import CallerError
from greenroom.server.settings import ServeSettings
from tests.cli.conftest import Cli
from tests.cli.test_serve import served

POSTGRES = "postgresql://localhost:1/none"


def settings(**more: object) -> ServeSettings:
    return ServeSettings(**{"workers": 2, "session_service": POSTGRES, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("workers", ["2", "auto"])
def test_several_workers_with_sqlite_are_refused_before_anything_is_opened(cli: Cli, workers: str) -> None:
    done = cli.run_process("serve", "agents", "--workers", workers, "--port", "0")
    assert done.returncode == 1
    assert done.stderr == (
        f"--workers {workers}: one server alone can use the default store, SQLite. Several workers need sessions in "
        "PostgreSQL (--session-service postgresql://host/database); without it, use --workers 1\n"
    )
    assert not (cli.folder / "agents" / ".greenroom").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"session_service": "sqlite:///chats.db"}, "one server alone can use sqlite:///chats.db"),
        ({"session_service": "firestore://project/database"}, "one server alone can use firestore://project/database"),
        ({"artifact_service": "memory://"}, "--artifact-service file:///folder"),
        ({"memory_service": "memory://"}, "--memory-service postgresql://localhost:1/none"),
        ({"a2a_grpc": "127.0.0.1:50051"}, "without --a2a-grpc"),
    ],
)
def test_settings_that_exclude_several_workers_are_named(more: dict[str, str], words: str) -> None:
    with pytest.raises(CallerError) as refused:
        worker_count(settings(**more))
    assert words in refused.value.detail
    assert worker_count(settings(workers=1, **more)) == 1


def test_auto_is_the_number_of_cpus_that_may_be_used(tmp_path: Path) -> None:
    cpus = len(os.sched_getaffinity(0))
    assert worker_count(settings(workers="auto")) == usable_cpus() <= cpus
    assert usable_cpus(tmp_path) == cpus
    for limit, count in (("max 100000", cpus), ("50000 100000", 1), (f"{cpus * 200000} 100000", cpus)):
        (tmp_path / "cpu.max").write_text(limit + "\n")
        assert usable_cpus(tmp_path) == count


def test_a_worker_that_can_t_start_ends_the_server_with_its_error(cli: Cli) -> None:
    done = cli.run_process("serve", "nowhere", "--workers", "2", "--port", "0", "--session-service", POSTGRES)
    assert done.returncode == 1
    assert done.stderr == "There is no folder 'nowhere' to find apps in\n"


def test_one_process_loads_nothing_of_workers(cli: Cli) -> None:
    cli.write(
        "sitecustomize.py", "import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))"
    )
    cli.environment["PYTHONPATH"] += f":{cli.folder}"
    with served(cli, "agents", "--session-service", "memory://") as (_, _, process):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
    loaded = set(errors.split())
    assert "greenroom.cli.http_server" in loaded
    assert not {name for name in loaded if name.startswith("greenroom.cli.worker")}


def test_each_worker_has_an_address_of_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for address, expected in (
        (None, "http://127.0.0.1:{}"),
        ("http://10.0.0.5", "http://10.0.0.5:{}"),
        ("http://[fd00::5]/base", "http://[fd00::5]:{}/base"),
        (f"http://10.0.0.5:{port - 1}", f"http://10.0.0.5:{port}"),
    ):
        listener, completed = replica_listener(settings(replica_address=address), 2)
        with listener:
            assert completed.replica_address == expected.format(listener.getsockname()[1])

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CallerError, match=rf"in use. Use another one \(--replica-address http://host:{port + 1}\)"):
            replica_listener(settings(replica_address=f"http://host:{port}"), 1)


def test_the_delay_of_a_restart_grows_with_each_early_end() -> None:
    assert [restart_delay(count) for count in range(9)] == [0, 0, 1, 2, 4, 8, 16, 30, 30]


class End:
    """One end of a channel, and what has arrived at it."""

    def __init__(self, end: socket.socket) -> None:
        self.channel = Channel(end)
        self.arrived: asyncio.Queue[tuple[Message, list[socket.socket]]] = asyncio.Queue()
        self.channel.open(lambda message, sockets: self.arrived.put_nowait((message, sockets)))


KINDS = pytest.mark.parametrize(
    "kind", [pytest.param(socket.SOCK_SEQPACKET, id="Linux"), pytest.param(socket.SOCK_DGRAM, id="macOS")]
)


@KINDS
async def test_a_channel_carries_more_connections_than_its_buffer_holds(kind: int) -> None:
    parents, workers = (End(end) for end in channel_sockets(kind))
    pairs = [socket.socketpair() for _ in range(400)]
    for connection, _ in pairs:
        parents.channel.send_connection(connection)
    parents.channel.send(Ready(""))
    async with asyncio.timeout(10):
        for _, client in pairs:
            message, [connection] = await workers.arrived.get()
            assert message == Connection()
            assert not connection.get_inheritable()
            with connection, client:
                connection.sendall(b"x")
                assert client.recv(1) == b"x"
        assert await workers.arrived.get() == (Ready(""), [])
        acknowledged = 0
        while acknowledged < len(pairs):
            message, _ = await parents.arrived.get()
            assert isinstance(message, Received)
            acknowledged += message.count
    assert all(connection.fileno() == -1 for connection, _ in pairs)
    assert parents.channel.take_back() == []
    parents.channel.close()
    workers.channel.close()


@KINDS
async def test_connections_that_were_not_received_are_returned(kind: int) -> None:
    parents, workers = (End(end) for end in channel_sockets(kind))
    workers.channel.stop_reading()
    connection, client = socket.socketpair()
    with connection, client:
        parents.channel.send_connection(connection)
        workers.channel.close()
        parents.channel.send(Ready(""))  # nobody is there any more
        assert parents.channel.take_back() == [connection]
        parents.channel.close()
        connection.sendall(b"x")
        assert client.recv(1) == b"x"
