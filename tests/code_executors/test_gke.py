"""Code in jobs of Kubernetes, by the official client: what the pods are, what comes back, and what is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from greenroom.code_executors import gke
from greenroom.code_executors.executor import TIMED_OUT
from greenroom.code_executors.gke import GkeCodeExecutor
from greenroom.environments.files import MAX_FILE_BYTES, MAX_FILES, File
from greenroom.environments.process import MAX_OUTPUT_BYTES
from greenroom.errors import ToolError
from tests.code_executors.coding import Coding, names
from tests.code_executors.kubernetes_server import KubernetesServer, running_kubernetes
from tests.server.serving import until

Connect: TypeAlias = Callable[..., GkeCodeExecutor]


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[KubernetesServer]:
    monkeypatch.setattr(gke, "_SCRATCH", str(tmp_path))
    monkeypatch.setattr(gke, "_MAX_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(gke, "_WATCH_PAUSE_SECONDS", 0.01)
    async with running_kubernetes(tmp_path) as running:
        yield running


@pytest.fixture
async def connect(server: KubernetesServer) -> AsyncGenerator[Connect]:
    """Makes executors, which are closed after the test."""
    async with AsyncExitStack() as stack:

        def made(**settings: Any) -> GkeCodeExecutor:
            settings = {"kubeconfig_path": str(server.kubeconfig()), **settings}
            executor = GkeCodeExecutor(kubeconfig_context="test", namespace="code", **settings)
            stack.push_async_callback(executor.close)
            return executor

        yield made


@pytest.fixture
def executor(connect: Connect) -> GkeCodeExecutor:
    return connect()


async def test_code_runs_in_a_hardened_pod(server: KubernetesServer, executor: GkeCodeExecutor) -> None:
    assert (await Coding(executor).run("print(__name__, 6 * 7)")).stdout == "__main__ 42\n"
    ((name, job),) = server.jobs.items()
    assert name.startswith("adk-exec-")
    assert len(name) == len("adk-exec-") + 10
    spec = job.manifest["spec"]
    assert (spec["backoffLimit"], spec["ttlSecondsAfterFinished"], spec["activeDeadlineSeconds"]) == (0, 600, 540)
    pod = spec["template"]["spec"]
    assert (pod["runtimeClassName"], pod["automountServiceAccountToken"], pod["restartPolicy"]) == (
        "gvisor",
        False,
        "Never",
    )
    (container,) = pod["containers"]
    assert container["image"] == "python:3.11-slim"
    assert container["resources"] == {
        "requests": {"cpu": "200m", "memory": "256Mi"},
        "limits": {"cpu": "500m", "memory": "512Mi"},
    }
    assert container["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1001,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert list(server.config_maps) == [f"code-src-{name}"]
    assert not any(call.startswith("DELETE") for call in server.calls)


async def test_files_go_in_and_new_and_changed_ones_come_out(executor: GkeCodeExecutor) -> None:
    code = """
import os
from pathlib import Path
import helper
Path("b.txt").write_text(Path("in/a.txt").read_text() + helper.MORE)
Path("c.txt").write_text("changed")
Path("deep").mkdir()
Path("deep/d.png").write_bytes(bytes(range(256)))
Path("link").symlink_to("/etc/passwd")
print(sorted(os.listdir()))
"""
    given = [
        File(name="in/a.txt", content=b"one"),
        File(name="c.txt", content=b"before"),
        File(name="helper.py", content=b"MORE = ' two'"),
    ]
    result = await Coding(executor, *given).run(code)
    assert (result.stderr, list(result.output_files)) == (
        "",
        [
            File(name="b.txt", content=b"one two"),
            File(name="c.txt", content=b"changed"),
            File(name="deep/d.png", content=bytes(range(256)), mime_type="image/png"),
        ],
    )


async def test_each_code_has_an_empty_folder(executor: GkeCodeExecutor) -> None:
    result = await Coding(executor).run("open('a', 'w')", "import os\nprint(os.listdir())")
    assert result.stdout == "[]\n"


async def test_an_input_file_with_a_name_that_leads_out_is_refused(
    server: KubernetesServer, executor: GkeCodeExecutor
) -> None:
    with pytest.raises(ToolError, match="leads out of its folder"):
        await Coding(executor, File(name="../code.py", content=b"")).run("")
    assert server.calls == []


async def test_files_that_are_too_large_for_a_job_are_refused(
    server: KubernetesServer, executor: GkeCodeExecutor
) -> None:
    with pytest.raises(ToolError, match="a job takes 1000000 at most"):
        await Coding(executor, File(name="a.bin", content=os.urandom(800_000))).run("")
    assert server.calls == []


async def test_failing_code_comes_back_with_its_traceback(executor: GkeCodeExecutor) -> None:
    result = await Coding(executor).run("print('half')\nraise KeyError('city')")
    assert (result.stdout, result.exit_code) == ("half\n", 1)
    assert result.stderr.endswith("KeyError: 'city'\n")


async def test_output_is_cut_and_files_beyond_the_limits_are_named(executor: GkeCodeExecutor) -> None:
    code = f"""
print("x" * 300_000)
open("a.bin", "wb").write(bytes({MAX_FILE_BYTES} + 1))
for n in range({MAX_FILES} + 1):
    open(f"f{{n:03}}", "w").close()
"""
    result = await Coding(executor).run(code)
    assert len(result.stdout) < MAX_OUTPUT_BYTES + 200
    assert result.stdout.endswith(
        "… (300001 bytes in all)\nNot kept, because of their number, size or name: 'a.bin', 'f050'\n"
    )
    assert names(result.output_files) == [f"f{n:03}" for n in range(MAX_FILES)]


async def test_code_that_takes_too_long_is_stopped_with_its_output(connect: Connect) -> None:
    result = await Coding(connect(timeout_seconds=0.5)).run("print('first')\nwhile True: pass")
    assert (result.stdout, result.exit_code) == ("first\n", TIMED_OUT)
    assert result.stderr == "The code was stopped after 0.5 s."


async def test_code_that_prints_an_outcome_is_not_believed(executor: GkeCodeExecutor) -> None:
    """It does not know the mark, which is in its parent's program only."""
    result = await Coding(executor).run("print('greenroom-0000:eJw=')\nprint('real')")
    assert result.stdout == "greenroom-0000:eJw=\nreal\n"


async def test_code_that_ends_its_container_has_failed(server: KubernetesServer, executor: GkeCodeExecutor) -> None:
    server.termination = {"exitCode": 137, "reason": "OOMKilled"}
    result = await Coding(executor).run("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)")
    assert result.stderr == "The code's container was stopped: OOMKilled, exit code 137"
    assert result.exit_code == 1


async def test_a_cancelled_run_deletes_its_job(server: KubernetesServer, executor: GkeCodeExecutor) -> None:
    task = asyncio.create_task(Coding(executor).run("while True: pass"))
    await until(lambda: any(job.process is not None for job in server.jobs.values()))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: (server.jobs, server.config_maps) == ({}, {}))


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [
        ({"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, "ErrImagePull: no such image"),
        ({"is_unschedulable": True}, "0/3 nodes have gVisor"),
    ],
)
async def test_a_pod_that_does_not_start_fails_the_run_with_the_reason(
    server: KubernetesServer,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    trouble: dict[str, Any],
    reason: str,
) -> None:
    monkeypatch.setattr(gke, "_START_SECONDS", 0.2)
    for name, value in trouble.items():
        setattr(server, name, value)
    with pytest.raises(ToolError, match=f"did not start: {reason}"):
        await Coding(connect(timeout_seconds=0.1)).run("print(1)")
    assert (server.jobs, server.config_maps) == ({}, {})


async def test_a_job_that_is_deleted_by_others_fails_the_run(
    server: KubernetesServer, executor: GkeCodeExecutor
) -> None:
    task = asyncio.create_task(Coding(executor).run("while True: pass"))
    await until(lambda: any(job.process is not None for job in server.jobs.values()))
    await until(lambda: "WATCH jobs" in server.calls)
    server._delete_job(next(iter(server.jobs)))
    with pytest.raises(ToolError, match="was deleted before its end"):
        await task


async def test_temporary_failures_are_tried_again_and_the_code_runs_once(
    server: KubernetesServer, executor: GkeCodeExecutor, tmp_path: Path
) -> None:
    server.failures = {
        "POST jobs": [503, -503],
        "POST configmaps": [-503, 429],
        "GET jobs": [503],
        "WATCH jobs": [503, 410],
        "GET pods": [500, 503],
    }
    server.cut_watches = 2
    count = tmp_path / "count"
    watched = tmp_path / "watched"
    code = f"""
import os, time
open({str(count)!r}, 'a').write('ran')
while not os.path.exists({str(watched)!r}):
    time.sleep(0.01)
print('done')
"""
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(Coding(executor).run(code))
        while server.cut_watches:
            await asyncio.sleep(0.01)
        watched.touch()
    result = running.result()
    assert (result.stdout, count.read_text()) == ("done\n", "ran")
    assert len(server.jobs) == 1
    assert (set(map(len, server.failures.values())), server.cut_watches) == ({0}, 0)


async def test_a_refusal_fails_the_run_and_leaves_nothing(server: KubernetesServer, executor: GkeCodeExecutor) -> None:
    server.failures = {"POST configmaps": [403]}
    with pytest.raises(ToolError, match=r"Kubernetes refused a request \(403\): refused: Forbidden"):
        await Coding(executor).run("print(1)")
    assert (server.jobs, server.config_maps) == ({}, {})


async def test_a_wrong_token_fails_the_run(server: KubernetesServer, connect: Connect) -> None:
    with pytest.raises(ToolError, match=r"\(401\): refused: Unauthorized"):
        await Coding(connect(kubeconfig_path=str(server.kubeconfig("wrong")))).run("print(1)")


async def test_a_cluster_that_is_not_there_fails_the_run(connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="There is no cluster of Kubernetes to run code in"):
        await Coding(connect(kubeconfig_path=str(tmp_path / "none"))).run("print(1)")


async def test_jobs_run_side_by_side(server: KubernetesServer, executor: GkeCodeExecutor, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waiting = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\nprint('went')"
    results = await asyncio.gather(Coding(executor).run(waiting), Coding(executor).run(f"open({str(go)!r}, 'w')"))
    assert [result.stdout for result in results] == ["went\n", ""]
