"""ADK's executor of code in containers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom import DEFAULT_IMAGE_TAG, ContainerCodeExecutor
from greenroom.environments.files import File
from greenroom.errors import ToolError
from tests.code_executors.coding import Coding
from tests.environments.podman import IMAGE, PodmanService


@pytest.fixture
async def executor(podman: PodmanService) -> AsyncIterator[ContainerCodeExecutor]:
    executor = ContainerCodeExecutor(base_url=podman.uri, image=IMAGE)
    yield executor
    await executor.close()
    assert podman.containers() == []


async def test_each_piece_of_code_has_a_container_of_its_own(executor: ContainerCodeExecutor) -> None:
    coding = Coding(executor, File(name="in.csv", content=b"1,2"))
    first = await coding.run("x = 1\nopen('out.csv', 'w').write(open('in.csv').read() * 2)\nprint(x)")
    second = await coding.run("import os\nprint('x' in globals(), os.path.exists('out.csv'))")
    assert (first.stdout, list(first.output_files)) == (
        "1\n",
        [File(name="out.csv", content=b"1,21,2", mime_type="text/csv")],
    )
    assert second.stdout == "False False\n"


async def test_a_stateful_one_keeps_a_container_for_each_session(podman: PodmanService) -> None:
    executor = ContainerCodeExecutor(podman.uri, IMAGE, stateful=True)
    coding = Coding(executor)
    await coding.run("x = 1")
    assert (await coding.run("print(x)")).stdout == "1\n"
    assert (await coding.run("print('x' in globals())", session_id="s-2")).stdout == "False\n"
    assert len(podman.containers()) == 2
    await executor.close()
    assert podman.containers() == []


def test_an_image_or_a_folder_to_build_one_is_needed() -> None:
    with pytest.raises(ValueError, match="image or docker_path"):
        ContainerCodeExecutor()


@pytest.mark.parametrize(
    ("image", "command"),
    [(None, "greenroom sandbox build 'my image'"), ("own:2", "greenroom sandbox build 'my image' --tag own:2")],
)
async def test_an_image_that_is_not_built_is_named_with_its_command(
    podman: PodmanService, image: str | None, command: str
) -> None:
    executor = ContainerCodeExecutor(podman.uri, image, docker_path="my image")
    with pytest.raises(ToolError, match=f"{image or DEFAULT_IMAGE_TAG} isn't there.* Get it with: {command}$"):
        await Coding(executor).run("")
    await executor.close()
