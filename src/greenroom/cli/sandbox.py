"""`greenroom sandbox`: container images in which agents run code, and Pyodide."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from greenroom.cli.terminal import console, note
from greenroom.environments.container_engine import DEFAULT_IMAGE, DEFAULT_IMAGE_TAG, ContainerEngine

app = App(name="sandbox", help="Get what agents run code in. Agents never get it themselves.")


@app.command
def pull(
    image: Annotated[str, Parameter(name="IMAGE")] = DEFAULT_IMAGE,
    /,
    *,
    base_url: str | None = None,
) -> None:
    """Pull an image from its registry into Docker or podman.

        greenroom sandbox pull python:3.13-slim

    Parameters
    ----------
    image
        It must contain `python3`, version 3.8 or newer.
    base_url
        The engine's address: `unix:///…` or `tcp://…`. By default `DOCKER_HOST`, or the usual sockets.
    """
    ContainerEngine(base_url).pull(image, _show)
    _show_ready(image)


@app.command
def build(
    folder: Annotated[Path, Parameter(name="FOLDER")],
    /,
    *,
    tag: str = DEFAULT_IMAGE_TAG,
    base_url: str | None = None,
) -> None:
    """Build an image from a folder that has a Dockerfile, with Docker or podman.

        greenroom sandbox build my_agents/analyst/image

    Parameters
    ----------
    folder
        Its Dockerfile must give the image `python3`, version 3.8 or newer.
    tag
        The image's name.
    base_url
        The engine's address: `unix:///…` or `tcp://…`. By default `DOCKER_HOST`, or the usual sockets.
    """
    ContainerEngine(base_url).build(folder, tag, _show)
    _show_ready(tag)


@app.command
def pull_pyodide() -> None:
    """Download Pyodide (14 MB), the Python of WebAssembly sandboxes. Does nothing if it is already there.

    It comes from the npm registry that Deno is configured for. Needs the extra `wasm`.

        greenroom sandbox pull-pyodide
    """
    from greenroom.environments.pyodide import pull as download

    folder = download()
    note("Pyodide is ready:")
    console("output").print(str(folder))


def _show(status: str) -> None:
    note(status)


def _show_ready(image: str) -> None:
    note("The image is ready:")
    console("output").print(image)
