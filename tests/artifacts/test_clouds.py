"""Artifacts keep the contract on servers that speak S3 and Azure's protocol."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from obstore.store import AzureStore, S3Store

from greenroom.artifacts.object_store import ArtifactStore, ObjectStoreArtifactService
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.testing.contracts.artifact_service import *  # noqa: F403
from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail

_WHERE: JsonObject = {"app_name": "concierge", "user_id": "ann", "session_id": "s-7"}
_UV = os.environ.get("UV") or shutil.which("uv")
_AZURITE = Path(__file__).parents[1] / "node/node_modules/azurite/dist/src/blob/main.js"
_AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The key of its account devstoreaccount1, the same in every installation."""


_MOTO = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app))
"""
"""One request at a time: in threads, moto checks the condition of a PUT and stores the object in two steps."""

MakeStore = Callable[[str], ArtifactStore]
"""Makes the store of a prefix, on a server that runs for all tests of this module."""


@pytest.fixture(scope="module", params=["s3", "azure"])
def make_store(request: pytest.FixtureRequest) -> Iterator[MakeStore]:
    port = _free_port()
    endpoint = f"http://127.0.0.1:{port}"
    if request.param == "s3":
        if _UV is None:
            skip_or_fail("needs uv, which fetches moto")
        moto = (_UV, "run", "--no-project", "--with", "moto[server]==5.1.*", "python", "-c", _MOTO, str(port))
        with _serving(*moto, port=port):
            httpx.put(f"{endpoint}/bucket").raise_for_status()
            yield lambda prefix: S3Store(
                "bucket",
                prefix=prefix,
                endpoint=endpoint,
                region="us-east-1",
                access_key_id="id",
                secret_access_key="secret",
                client_options={"allow_http": True},
            )
        return
    node = shutil.which("node")
    if node is None or not _AZURITE.exists():
        pytest.skip("needs node and azurite: make azurite")
    command = (node, str(_AZURITE), "--blobPort", str(port), "--disableTelemetry", "--inMemoryPersistence", "--silent")
    with _serving(*command, "--skipApiVersionCheck", port=port):
        _make_container(f"{endpoint}/devstoreaccount1/container")
        yield lambda prefix: AzureStore(
            "container",
            prefix=prefix,
            account_name="devstoreaccount1",
            account_key=_AZURITE_KEY,
            endpoint=f"{endpoint}/devstoreaccount1",
            client_options={"allow_http": True},
        )


@pytest.fixture
def artifact_service(make_store: MakeStore) -> ObjectStoreArtifactService:
    return ObjectStoreArtifactService(make_store(uuid4().hex))


async def test_a_signed_url_gives_the_bytes_to_anybody(artifact_service: ObjectStoreArtifactService) -> None:
    part = Part.from_bytes(data=b"png", mime_type="image/png")
    await artifact_service.save_artifact(**_WHERE, filename="a.png", artifact=part)
    assert await artifact_service.signed_url(**_WHERE, filename="a.png", version=1) is None
    url = await artifact_service.signed_url(**_WHERE, filename="a.png", expires_seconds=60)
    assert url is not None
    async with httpx.AsyncClient() as client:
        reply = await client.get(url)
    assert (reply.content, reply.headers["content-type"]) == (b"png", "image/png")


async def test_savers_of_several_processes_get_versions_of_their_own(make_store: MakeStore) -> None:
    """The store decides, by the precondition of a write; savers of one process take turns."""
    prefix = uuid4().hex
    services = [ObjectStoreArtifactService(make_store(prefix)) for _ in range(4)]
    saves = [
        service.save_artifact(**_WHERE, filename="log", artifact=Part(text=str(number)))
        for number in range(3)
        for service in services
    ]
    assert sorted(await asyncio.gather(*saves)) == list(range(12))


async def test_large_data_goes_up_and_down_in_pieces(artifact_service: ObjectStoreArtifactService) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for number in range(100):
            yield bytes([number]) * 1_000_000

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await artifact_service.upload_artifact(**_WHERE, filename="a", chunks=chunks(), mime_type="video/mp4")
    content = await artifact_service.download_artifact(**_WHERE, filename="a")
    assert content is not None
    position = 0
    async for chunk in content.chunks:
        assert (chunk[0], chunk[-1]) == (position // 1_000_000, (position + len(chunk) - 1) // 1_000_000)
        position += len(chunk)
    assert (position, content.version.mime_type) == (100_000_000, "video/mp4")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80_000  # KB, of 200 MB that went through


@contextmanager
def _serving(*command: str, port: int) -> Generator[None]:
    server = subprocess.Popen(
        [*END_WITH_PARENT, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while True:
            assert server.poll() is None, "the server has ended"
            assert time.monotonic() < deadline, "the server doesn't answer"
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _make_container(url: str) -> None:
    """With the signature of Azure's "Authorize with Shared Key": obstore makes no containers."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    lines = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
    signed = "\n".join([*lines, "/devstoreaccount1/devstoreaccount1/container", "restype:container"])
    digest = hmac.digest(base64.b64decode(_AZURITE_KEY), signed.encode(), hashlib.sha256)
    headers["authorization"] = f"SharedKey devstoreaccount1:{base64.b64encode(digest).decode()}"
    httpx.put(url, params={"restype": "container"}, headers=headers).raise_for_status()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]
