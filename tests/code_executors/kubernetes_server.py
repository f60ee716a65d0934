"""A small Kubernetes for tests: an API server with TLS and tokens, and jobs that run as processes of this machine.

Source: https://kubernetes.io/docs/reference/kubernetes-api/, `Job` (batch/v1), `ConfigMap` and `Pod` (v1).
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import ipaddress
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.server.quick_server import TICK_SECONDS, QuickServer

TOKEN = "secret-token"
_METHODS = ["GET", "POST", "DELETE"]
_REASONS = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "AlreadyExists", 503: "ServiceUnavailable"}


@dataclass
class Job:
    manifest: dict[str, Any]
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    process: asyncio.subprocess.Process | None = None
    exit_code: int | None = None
    """Once it has ended."""
    log: bytes = b""
    is_deleted: bool = False

    def as_json(self) -> dict[str, Any]:
        status: dict[str, Any] = {}
        if self.exit_code is not None:
            status = {"succeeded" if self.exit_code == 0 else "failed": 1}
        return {"apiVersion": "batch/v1", "kind": "Job", **self.manifest, "status": status}


@dataclass
class KubernetesServer:
    """failures: HTTP statuses of the next requests, by `METHOD resource`, such as `POST jobs` or `WATCH jobs`; after a
    minus sign: the work is done before. cut_watches: how many watches end after their first event. waiting, is_unschedulable: why no
    pod starts. termination: what is told about a container in place of its own end.
    """

    folder: Path
    url: str = ""
    certificate: bytes = b""
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    config_maps: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    failures: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    calls: list[str] = field(default_factory=list[str])
    waiting: dict[str, Any] | None = None
    termination: dict[str, Any] | None = None
    is_unschedulable: bool = False
    cut_watches: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    def kubeconfig(self, token: str = TOKEN) -> Path:
        path = self.folder / f"kubeconfig-{token}"
        authority = base64.b64encode(self.certificate).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "none",
            "clusters": [
                {"name": "test", "cluster": {"server": self.url, "certificate-authority-data": authority}},
            ],
            "users": [{"name": "tester", "user": {"token": token}}],
            "contexts": [
                {"name": "test", "context": {"cluster": "test", "user": "tester"}},
                {"name": "none", "context": {"cluster": "none", "user": "none"}},
            ],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    async def answer(self, request: Request) -> Response:
        resource, _, name = request.path_params["path"].partition("/")
        call = f"{'WATCH' if 'watch' in request.query_params else request.method} {resource}"
        self.calls.append(call)
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _status(401)
        failure = next(iter(self.failures.get(call, ())), 0)
        if failure:
            self.failures[call].pop(0)
        if failure > 0:
            return _status(failure)
        reply = await self._dispatch(request, resource, name)
        return _status(-failure) if failure else reply

    async def _dispatch(self, request: Request, resource: str, name: str) -> Response:
        assert request.path_params["namespace"] == "code"
        query = request.query_params
        match request.method, resource:
            case "POST", "jobs":
                return self._create_job(json.loads(await request.body()))
            case "POST", "configmaps":
                return self._create_config_map(json.loads(await request.body()))
            case "GET", "jobs" if name:
                return JSONResponse(self.jobs[name].as_json()) if name in self.jobs else _status(404)
            case "GET", "jobs":
                assert query["watch"] in ("true", "True")
                watched = query["fieldSelector"].removeprefix("metadata.name=")
                return StreamingResponse(self._watch(watched, int(query["timeoutSeconds"])))
            case "DELETE", "jobs":
                return self._delete_job(name) if name in self.jobs else _status(404)
            case "GET", "pods" if name.endswith("/log"):
                assert query["container"] == "code-runner"
                job = self.jobs[name.removesuffix("-pod/log")]
                return Response(job.log[: int(query["limitBytes"])], media_type="text/plain")
            case "GET", "pods":
                return self._list_pods(query["labelSelector"].removeprefix("job-name="))
            case _:
                return _status(404)

    def _create_job(self, manifest: dict[str, Any]) -> Response:
        name = manifest["metadata"]["name"]
        if name in self.jobs:
            return _status(409)
        manifest["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": "1"}
        self.jobs[name] = Job(manifest)
        self._start_if_complete(name)
        return JSONResponse(self.jobs[name].as_json(), 201)

    def _create_config_map(self, manifest: dict[str, Any]) -> Response:
        (owner,) = manifest["metadata"]["ownerReferences"]
        name = manifest["metadata"]["name"]
        if name in self.config_maps:
            return _status(409)
        assert owner["uid"] == f"uid-of-{owner['name']}"
        self.config_maps[name] = manifest
        self._start_if_complete(owner["name"])
        return JSONResponse(manifest, 201)

    def _start_if_complete(self, name: str) -> None:
        """A pod starts when its volumes are there."""
        job = self.jobs.get(name)
        if job is None or job.process is not None or self.waiting is not None or self.is_unschedulable:
            return
        volumes = job.manifest["spec"]["template"]["spec"]["volumes"]
        code = self.config_maps.get(volumes[0]["configMap"]["name"])
        if code is not None:
            task = asyncio.create_task(self._run(job, code["data"]))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _run(self, job: Job, files: dict[str, str]) -> None:
        folder = self.folder / job.manifest["metadata"]["name"]
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_text(content)
        (container,) = job.manifest["spec"]["template"]["spec"]["containers"]
        program, script = container["command"]
        assert program == "python3"
        job.process = await asyncio.create_subprocess_exec(
            sys.executable,
            script.replace("/app", str(folder)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        job.log, _ = await job.process.communicate()
        assert job.process.returncode is not None
        job.exit_code = job.process.returncode if job.process.returncode >= 0 else 128 - job.process.returncode
        job.changed.set()

    async def _watch(self, name: str, seconds: int) -> AsyncGenerator[bytes]:
        """The present state first, as without a resource version."""
        job = self.jobs[name]
        yield _event("ADDED", job)
        if self.cut_watches:
            self.cut_watches -= 1
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await job.changed.wait()
                yield _event("DELETED" if job.is_deleted else "MODIFIED", job)

    def _delete_job(self, name: str) -> Response:
        """With what belongs to it."""
        job = self.jobs.pop(name)
        self.config_maps = {
            key: one for key, one in self.config_maps.items() if one["metadata"]["ownerReferences"][0]["name"] != name
        }
        if job.process is not None and job.exit_code is None:
            _kill(job.process)
        job.is_deleted = True
        job.changed.set()
        return JSONResponse({"kind": "Status", "status": "Success"})

    def _list_pods(self, name: str) -> Response:
        job = self.jobs.get(name)
        if job is None:
            return JSONResponse({"kind": "PodList", "items": []})
        state: dict[str, Any] = {"running": {}}
        if self.waiting is not None:
            state = {"waiting": self.waiting}
        elif job.exit_code is not None:
            state = {"terminated": self.termination or {"exitCode": job.exit_code, "reason": "Completed"}}
        container = {
            "name": "code-runner",
            "state": state,
            "image": "i",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
        }
        status: dict[str, Any] = {"phase": "Running", "containerStatuses": [container]}
        if self.is_unschedulable:
            unmet = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes have gVisor"}
            status = {"phase": "Pending", "conditions": [unmet]}
        return JSONResponse({"kind": "PodList", "items": [{"metadata": {"name": f"{name}-pod"}, "status": status}]})


def _event(kind: str, job: Job) -> bytes:
    return json.dumps({"type": kind, "object": job.as_json()}).encode() + b"\n"


def _status(code: int) -> Response:
    reason = _REASONS.get(code, "")
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": f"refused: {reason}"}
    return JSONResponse(body, code)


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _write_certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kubernetes")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "server.crt", folder / "server.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


@asynccontextmanager
async def running_kubernetes(folder: Path) -> AsyncGenerator[KubernetesServer]:
    certificate, key = _write_certificate(folder)
    cluster = KubernetesServer(folder, certificate=certificate.read_bytes())
    routes = [
        Route("/apis/batch/v1/namespaces/{namespace}/{path:path}", cluster.answer, methods=_METHODS),
        Route("/api/v1/namespaces/{namespace}/{path:path}", cluster.answer, methods=_METHODS),
    ]
    config = uvicorn.Config(
        Starlette(routes=routes), port=0, log_level="critical", lifespan="off",
        ssl_certfile=certificate, ssl_keyfile=key,
    )  # fmt: skip
    server = QuickServer(config)
    serving = asyncio.create_task(server.serve())
    async with asyncio.timeout(5):
        while not server.started:
            await asyncio.sleep(TICK_SECONDS)
    cluster.url = f"https://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield cluster
    finally:
        for job in cluster.jobs.values():
            job.changed.set()
            if job.process is not None and job.exit_code is None:
                _kill(job.process)
        await asyncio.gather(*cluster.tasks)
        server.should_exit = True
        await serving
