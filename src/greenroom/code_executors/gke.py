"""Code in jobs of Kubernetes.

Source: https://kubernetes.io/docs/reference/kubernetes-api/, `Job` (batch/v1), `ConfigMap` and `Pod` (v1), by the
official client; https://cloud.google.com/kubernetes-engine/docs/how-to/sandbox-pods for gVisor on GKE. Names and
settings of the job: ADK.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import uuid4

import msgspec
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from greenroom.code_executors.executor import (
    CODE_BLOCKS,
    RESULT_BLOCK,
    TIMED_OUT,
    BaseCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
    Delimiters,
)
from greenroom.code_executors.job import MAX_PRINTED_BYTES, Job
from greenroom.errors import MissingExtra, ToolError
from greenroom.invocation.context import InvocationContext
from greenroom.records.base import JsonObject

T = TypeVar("T")

_CONTAINER = "code-runner"
_SCRATCH = "/tmp"
_SCRATCH_SIZE = "256Mi"
_USER = 1001
_LABEL = "greenroom-code"
_TTL_SECONDS = 600

_MAX_PROGRAM_BYTES = 1_000_000
"""Of a ConfigMap, which holds 1 MiB at most."""

_MAX_FILE_BYTES = 5 * 2**20
"""Of all output files: they are printed, and nodes keep 10 MiB of what a container prints."""

_CHUNK_BYTES = 64 * 2**10
_START_SECONDS = 120.0
_REQUEST_SECONDS = 30.0
_DELETION_SECONDS = 10.0
_WATCH_SECONDS = 60
_WATCH_PAUSE_SECONDS = 0.5
_TRIES = 4
_MAX_WAIT_SECONDS = 2.0
_TEMPORARY = {429, 500, 502, 503, 504}


class GkeCodeExecutor(BaseCodeExecutor):
    """Runs each piece of code as a job of Kubernetes, in a pod of its own: under gVisor, not as root, with a read-only
    root, without capabilities and without an account of the cluster. The pod has a network: limit it by a NetworkPolicy
    for pods with the label `app.kubernetes.io/name: greenroom-code`.

    kubeconfig_path, kubeconfig_context: the cluster. Default: the one that greenroom runs in, else the current context
        of the machine's kubeconfig.
    image: has a `python3`, 3.8 or later.
    timeout_seconds: for the code; 120 seconds more for the pod's start.
    cpu_requested, mem_requested, cpu_limit, mem_limit: in the notation of Kubernetes.

    Code and input files, compressed, may have 1 MB; output files have 5 MiB in all. A job that has ended is deleted
    with its pod after 600 seconds; one that takes too long, or whose run is cancelled, at once.

    The account of greenroom needs, in the namespace: `create`, `get`, `watch`, `list` and `delete` of jobs, `create` of
    configmaps, `list` of pods and `get` of pods/log.
    """

    def __init__(
        self,
        kubeconfig_path: str | None = None,
        kubeconfig_context: str | None = None,
        *,
        namespace: str = "default",
        image: str = "python:3.11-slim",
        timeout_seconds: float = 300.0,
        cpu_requested: str = "200m",
        mem_requested: str = "256Mi",
        cpu_limit: str = "500m",
        mem_limit: str = "512Mi",
        error_retry_attempts: int = 2,
        optimize_data_file: bool = False,
        code_block_delimiters: Sequence[Delimiters] = CODE_BLOCKS,
        execution_result_delimiters: Delimiters = RESULT_BLOCK,
    ) -> None:
        super().__init__(
            code_block_delimiters=code_block_delimiters,
            execution_result_delimiters=execution_result_delimiters,
            error_retry_attempts=error_retry_attempts,
            optimize_data_file=optimize_data_file,
            timeout_seconds=timeout_seconds,
        )
        self._kubeconfig_path = kubeconfig_path
        self._kubeconfig_context = kubeconfig_context
        self._namespace = namespace
        self._image = image
        self._requests = {"cpu": cpu_requested, "memory": mem_requested}
        self._limits = {"cpu": cpu_limit, "memory": mem_limit}
        self._seconds = timeout_seconds
        self._cluster: _Cluster | None = None
        self._connecting = asyncio.Lock()

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        job = await asyncio.to_thread(
            Job, code_execution_input, folder=_SCRATCH, timeout_seconds=self._seconds, max_bytes=_MAX_FILE_BYTES
        )
        size = len(job.program.encode())
        if size > _MAX_PROGRAM_BYTES:
            raise ToolError(
                f"The code and its files have {size} bytes, compressed; a job takes {_MAX_PROGRAM_BYTES} at most"
            )

        cluster = await self._connected()
        name = f"adk-exec-{uuid4().hex[:10]}"
        has_ended = False
        try:
            await cluster.create(name, self._manifest(name, invocation_context.invocation_id), job.program)
            async with asyncio.timeout(self._seconds + _START_SECONDS):
                await cluster.wait(name)
            has_ended = True
        except TimeoutError:
            reason = await cluster.reason_for_waiting(name)
            if reason:
                raise ToolError(f"The pod of job {name} did not start: {reason}") from None
            return _timed_out(self._seconds)
        finally:
            if not has_ended:
                await cluster.delete(name)

        printed, exit_code, reason = await cluster.outcome(name)
        return await asyncio.to_thread(job.result, printed) or _stopped(exit_code, reason)

    async def close(self) -> None:
        cluster = self._cluster
        self._cluster = None
        if cluster is not None:
            await cluster.close()

    async def _connected(self) -> _Cluster:
        """Connects on the first call, and again in another event loop."""
        async with self._connecting:
            loop = asyncio.get_running_loop()
            if self._cluster is None or self._cluster.loop is not loop:
                configuration = await _configuration(self._kubeconfig_path, self._kubeconfig_context)
                self._cluster = _Cluster(configuration, self._namespace)
            return self._cluster

    def _manifest(self, name: str, invocation_id: str) -> JsonObject:
        container: JsonObject = {
            "name": _CONTAINER,
            "image": self._image,
            "command": ["python3", "/app/code.py"],
            "workingDir": _SCRATCH,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "resources": {"requests": self._requests, "limits": self._limits},
            "volumeMounts": [
                {"name": "code", "mountPath": "/app", "readOnly": True},
                {"name": "scratch", "mountPath": _SCRATCH},
            ],
        }
        pod: JsonObject = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "runtimeClassName": "gvisor",
            "tolerations": [
                {"key": "sandbox.gke.io/runtime", "operator": "Equal", "value": "gvisor", "effect": "NoSchedule"}
            ],
            "containers": [container],
            "volumes": [
                {"name": "code", "configMap": {"name": _config_map(name)}},
                {"name": "scratch", "emptyDir": {"sizeLimit": _SCRATCH_SIZE}},
            ],
        }
        labels = {"app.kubernetes.io/name": _LABEL}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {"adk.agent.google.com/invocation-id": invocation_id},
            },
            "spec": {
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": _TTL_SECONDS,
                # Kubernetes stops the job if greenroom's process has ended before.
                "activeDeadlineSeconds": math.ceil(self._seconds + 2 * _START_SECONDS),
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        }


class _Cluster:
    """Requests to a cluster about jobs in a namespace. Methods raise ToolError."""

    def __init__(self, configuration: Any, namespace: str) -> None:
        client = _client()
        self.loop = asyncio.get_running_loop()
        self._namespace = namespace
        self._api = client.ApiClient(configuration)
        self._batch = client.BatchV1Api(self._api)
        self._core = client.CoreV1Api(self._api)

    async def create(self, name: str, manifest: JsonObject, program: str) -> None:
        """Creates the job before its code: who deletes the job deletes both, and no code stays without a job."""
        client = _client()
        job = client.V1Job.from_dict(manifest)
        created = await self._created(
            lambda: self._batch.create_namespaced_job(self._namespace, job, _request_timeout=_REQUEST_SECONDS),
            lambda: self._batch.read_namespaced_job(name, self._namespace, _request_timeout=_REQUEST_SECONDS),
        )
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": created.metadata.uid}
        code = client.V1ConfigMap.from_dict(
            {"metadata": {"name": _config_map(name), "ownerReferences": [owner]}, "data": {"code.py": program}}
        )
        await self._created(
            lambda: self._core.create_namespaced_config_map(self._namespace, code, _request_timeout=_REQUEST_SECONDS),
            _nothing,
        )

    async def wait(self, name: str) -> None:
        """Returns when the job has ended. A watch that breaks off begins again."""
        watch_module: Any = importlib.import_module("kubernetes.aio.watch")
        while True:
            async with watch_module.Watch() as watch:
                events = watch.stream(
                    self._batch.list_namespaced_job,
                    self._namespace,
                    field_selector=f"metadata.name={name}",
                    timeout_seconds=_WATCH_SECONDS,
                )
                try:
                    async for event in events:
                        if event["type"] == "DELETED":
                            raise ToolError(f"Job {name} was deleted before its end")
                        if _has_ended(event["object"]):
                            return
                except Exception as error:  # of the client or of its HTTP library
                    if not _is_temporary(error):
                        raise _tool_error(error) from error
            await asyncio.sleep(_WATCH_PAUSE_SECONDS)

    async def outcome(self, name: str) -> tuple[bytes, int | None, str]:
        """The output of the pod, its exit code, and the cluster's reason for its end, if it has one."""
        pod = await self._pod(name)
        if pod is None:
            return b"", None, "its pod is gone"

        async def read() -> bytes:
            response = await self._core.read_namespaced_pod_log_without_preload_content(
                pod.metadata.name,
                self._namespace,
                container=_CONTAINER,
                limit_bytes=MAX_PRINTED_BYTES,
                _request_timeout=_REQUEST_SECONDS,
            )
            async with response:
                if response.status >= 400:
                    raise _client().ApiException(status=response.status, body=await response.text())
                printed = bytearray()
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    printed += chunk
                    if len(printed) >= MAX_PRINTED_BYTES:
                        break
                return bytes(printed)

        ended = _terminated(pod)
        printed = await self._tried(read)
        if ended is None:
            return printed, None, pod.status.reason or ""
        return printed, ended.exit_code, ended.reason or ""

    async def reason_for_waiting(self, name: str) -> str:
        """The cluster's reason for not having started the pod; empty if it has."""
        pod = await self._pod(name)
        if pod is None:
            return "the cluster made none"
        for status in pod.status.container_statuses or ():
            waiting = status.state.waiting if status.state is not None else None
            if waiting is None:
                return ""
            return ": ".join(filter(None, [waiting.reason, waiting.message]))
        for condition in pod.status.conditions or ():
            if condition.type == "PodScheduled" and condition.status == "False":
                return condition.message or condition.reason or "no node takes it"
        return "no node has started it"

    async def delete(self, name: str) -> None:
        """Deletes a job with its pod and its code. If that fails, the job ends by its deadline."""
        with contextlib.suppress(Exception):  # of the client or of its HTTP library; another one is on its way
            async with asyncio.timeout(_DELETION_SECONDS):
                await self._batch.delete_namespaced_job(name, self._namespace, propagation_policy="Background")

    async def close(self) -> None:
        if self.loop is asyncio.get_running_loop():
            await self._api.close()

    async def _pod(self, name: str) -> Any:
        pods: Any = await self._tried(
            lambda: self._core.list_namespaced_pod(
                self._namespace, label_selector=f"job-name={name}", limit=1, _request_timeout=_REQUEST_SECONDS
            )
        )
        return pods.items[0] if pods.items else None

    async def _created(self, create: Callable[[], Awaitable[T]], read: Callable[[], Awaitable[T]]) -> T:
        """Creates something under a name of its own. It may exist after a try whose response was lost."""
        tries = 0

        async def create_or_read() -> T:
            nonlocal tries
            tries += 1
            try:
                return await create()
            except Exception as error:
                if tries > 1 and getattr(error, "status", None) == 409:
                    return await read()
                raise

        return await self._tried(create_or_read)

    async def _tried(self, request: Callable[[], Awaitable[T]]) -> T:
        """Sends a request, again after temporary errors."""
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception(_is_temporary),
                wait=wait_random_exponential(multiplier=0.25, max=_MAX_WAIT_SECONDS),
                stop=stop_after_attempt(_TRIES),
                reraise=True,
            ):
                with attempt:
                    return await request()
        except Exception as error:  # of the client or of its HTTP library
            raise _tool_error(error) from error
        raise AssertionError("the last attempt returns or raises")


async def _nothing() -> None:
    return None


def _client() -> Any:
    return importlib.import_module("kubernetes.aio.client")


def _load() -> tuple[Any, Any]:
    """Imports the client with the parts that it imports when they are used: seconds of computation, once."""
    client = _client()
    for part in ("ApiClient", "BatchV1Api", "CoreV1Api", "V1ConfigMap", "V1Job"):
        getattr(client, part)
    importlib.import_module("kubernetes.aio.watch")
    return client, importlib.import_module("kubernetes.aio.config")


async def _configuration(path: str | None, context: str | None) -> Any:
    """Raises MissingExtra, and ToolError without a cluster."""
    try:
        client, config = await asyncio.to_thread(_load)
    except ImportError as error:
        raise MissingExtra("kubernetes", "kubernetes") from error

    configuration = client.Configuration()
    try:
        if path is None and context is None:
            try:
                config.load_incluster_config(client_configuration=configuration)
                return configuration
            except config.ConfigException:  # greenroom runs outside of a cluster
                pass
        await config.load_kube_config(config_file=path, context=context, client_configuration=configuration)
    except Exception as error:  # a missing file, YAML that is none, a login that fails
        raise ToolError(f"There is no cluster of Kubernetes to run code in: {error}") from error
    return configuration


def _config_map(job: str) -> str:
    return f"code-src-{job}"


def _has_ended(job: Any) -> bool:
    return job.status is not None and bool(job.status.succeeded or job.status.failed or _has_failed(job))


def _has_failed(job: Any) -> bool:
    return any(one.type == "Failed" and one.status == "True" for one in job.status.conditions or ())


def _terminated(pod: Any) -> Any:
    for status in pod.status.container_statuses or ():
        if status.state is not None and status.state.terminated is not None:
            return status.state.terminated
    return None


def _is_temporary(error: BaseException) -> bool:
    if isinstance(error, ToolError):
        return False
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status in _TEMPORARY or status == 410  # 410: a watch that is too old
    http: Any = importlib.import_module("aiohttp")
    return isinstance(error, (http.ClientError, TimeoutError))


def _tool_error(error: Exception) -> ToolError:
    if isinstance(error, (ToolError, MissingExtra)):
        return ToolError(str(error))
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return ToolError(f"Kubernetes refused a request ({status}): {_message(error)}")
    return ToolError(f"Kubernetes can't be reached: {error or type(error).__name__}")


def _message(error: Exception) -> str:
    """The message in the body of a response; else its reason."""
    try:
        return msgspec.json.decode(getattr(error, "body", None) or b"", type=dict[str, Any])["message"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return str(getattr(error, "reason", "") or "")[:1000]


def _timed_out(seconds: float) -> CodeExecutionResult:
    return CodeExecutionResult(stderr=f"The code was stopped after {seconds:g} s.", exit_code=TIMED_OUT)


def _stopped(exit_code: int | None, reason: str) -> CodeExecutionResult:
    """Code that ended its container, or was stopped with it, as for memory."""
    about = ", ".join(filter(None, [reason, None if exit_code is None else f"exit code {exit_code}"]))
    return CodeExecutionResult(stderr=f"The code's container was stopped: {about or 'no reason is known'}", exit_code=1)
