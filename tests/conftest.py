"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator, Iterator
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from tests.environments.podman import PodmanService, running_podman
from tests.google_cloud.firestore_emulator import running_emulator
from tests.postgres.postgres_server import PostgresServer, started_server
from tests.seed import IS_REPEATABLE

# A shell that starts the tests in the background makes them deaf to SIGINT, and with them every process they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How fast examples are made says more about the machine than about the test.
settings.register_profile(
    "any machine", deadline=None, derandomize=IS_REPEATABLE, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


_OTHER_SERVERS = {"postgres_server", "firestore_emulator", "podman", "temporal_server", "vertex"}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without garbage collection, and leaves what was collected out of it: it would be searched in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs another server."""
    for item in items:
        if _OTHER_SERVERS.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of a process. It need not survive a crash of the machine."""
    server = started_server("fsync=off", "full_page_writes=off", "synchronous_commit=off")
    yield server
    server.remove()


@pytest.fixture
def postgres_uri(postgres_server: PostgresServer) -> Iterator[str]:
    """A database without rows, which may have our tables: making one takes longer than most tests."""
    yield postgres_server.make_shared_database()
    postgres_server.clear_shared_database()


@pytest.fixture
def empty_postgres_uri(postgres_server: PostgresServer) -> Iterator[str]:
    """A new database."""
    name = f"test_{uuid4().hex}"
    yield postgres_server.make_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def firestore_emulator() -> Iterator[str]:
    """One emulator for all tests of a process, each in a project of its own."""
    with running_emulator() as host:
        yield host


@pytest.fixture
def firestore_host(firestore_emulator: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_emulator)
    return firestore_emulator


@pytest.fixture(scope="session")
def podman() -> Iterator[PodmanService]:
    """One service for all tests of a process. It has no containers but those of the test that runs."""
    with running_podman() as service:
        yield service


@pytest.fixture(scope="module")
def docker_host(podman: PodmanService) -> Iterator[str]:
    """Makes podman the engine of container sandboxes that name none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", podman.uri)
        yield podman.uri
