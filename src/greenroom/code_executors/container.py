"""Code that runs in containers, by ADK's name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from greenroom.code_executors.executor import CODE_BLOCKS, RESULT_BLOCK, Delimiters
from greenroom.code_executors.sandboxed import SandboxCodeExecutor
from greenroom.environments.container import ContainerSandbox
from greenroom.environments.sandbox import SandboxLimits


class ContainerCodeExecutor(SandboxCodeExecutor):
    """A `SandboxCodeExecutor` whose sandboxes are containers of Docker or podman.

    base_url: the engine's address. None: `DOCKER_HOST`, else the usual sockets of Docker and podman.
    image: with `python3`; `greenroom sandbox pull` gets it.
    docker_path: a folder with a Dockerfile, from which `greenroom sandbox build` makes the image. Its name is `image`,
        by default `DEFAULT_IMAGE_TAG`.
    network_enabled: code reaches the engine's default network.

    One of image and docker_path must be there: else ValueError.

    Source of names and defaults: ADK, which builds images itself, and runs all code in one container.
    """

    def __init__(
        self,
        base_url: str | None = None,
        image: str | None = None,
        docker_path: str | Path | None = None,
        *,
        network_enabled: bool = False,
        limits: SandboxLimits | None = None,
        stateful: bool = False,
        timeout_seconds: float = 300.0,
        error_retry_attempts: int = 2,
        optimize_data_file: bool = False,
        code_block_delimiters: Sequence[Delimiters] = CODE_BLOCKS,
        execution_result_delimiters: Delimiters = RESULT_BLOCK,
    ) -> None:
        if not image and not docker_path:
            raise ValueError("ContainerCodeExecutor: image or docker_path must be set")

        super().__init__(
            ContainerSandbox(
                image=image,
                docker_path=docker_path,
                base_url=base_url,
                network=network_enabled,
                limits=limits,
            ),
            stateful=stateful,
            timeout_seconds=timeout_seconds,
            error_retry_attempts=error_retry_attempts,
            optimize_data_file=optimize_data_file,
            code_block_delimiters=code_block_delimiters,
            execution_result_delimiters=execution_result_delimiters,
        )
