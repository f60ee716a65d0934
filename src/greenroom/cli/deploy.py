"""`greenroom deploy`: files that run the apps of a folder elsewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter

from greenroom.cli.terminal import note, print_line
from greenroom.errors import InvalidRequest
from greenroom.version import __version__

if TYPE_CHECKING:
    from greenroom.cli.app_check.app_files import AppFiles

TEMPLATES = Path(__file__).parent / "templates_deploy"

_AGENTS = "/srv/agents"
"""The folder of the apps where they are served, as the templates have it."""

_SERVER_EXTRAS = ("auth", "postgres", "telemetry", "webhooks")
"""Extras that settings of a server need."""

_REPLACED = ("google-adk", "greenroom")
"""Distributions that apps list, in place of which greenroom is installed."""

app = App(
    name="deploy", help="Write the files that run the apps of a folder in containers or on a machine of your own."
)

_Directory: TypeAlias = Annotated[
    Path,
    Parameter(
        name="DIR",
        help="The folder to serve: of apps, or of one app. Files that are already there are not replaced.",
    ),
]


@app.command
def docker(directory: _Directory, /) -> None:
    """Write a `Dockerfile` with its `.dockerignore`, and the `requirements.txt` that it installs.

    The image serves the apps on port 8000, not as root, on a root file system that may be read-only. A volume holds the
    data. The requirements are greenroom with the extras that a server and the apps need, what the apps list in a
    `requirements.txt` of their own, and other packages that they import: look them through.

        greenroom deploy docker agents
    """
    served = _write(directory, ["Dockerfile", ".dockerignore"])

    folder = shlex.quote(str(directory))
    run = f"docker run --rm --volume agents:{served}/.greenroom"
    _show_next_steps(
        f"docker build --tag agents {folder}",
        f"{run} agents keys create {served} --user NAME",
        f"{run} --read-only --tmpfs /tmp --publish 8000:8000 agents",
    )


@app.command
def compose(directory: _Directory, /) -> None:
    """Write a `compose.yaml`, and the files of `greenroom deploy docker`, whose image it uses.

    Two servers on PostgreSQL and an object store, behind a load balancer. With `--profile telemetry`, a collector of
    OpenTelemetry. Passwords, the public URL and the secrets of webhooks come from variables in the file `.env`.

        greenroom deploy compose agents
    """
    served = _write(directory, ["compose.yaml", "Dockerfile", ".dockerignore"])

    _show_next_steps(
        f"cd {shlex.quote(str(directory))}",
        'echo "POSTGRES_PASSWORD=$(openssl rand -hex 24)" >> .env',
        'echo "S3_PASSWORD=$(openssl rand -hex 24)" >> .env',
        "docker compose build",
        f"docker compose run --rm greenroom-1 keys create {served} --user NAME",
        "docker compose up --detach --wait",
    )


@app.command
def systemd(directory: _Directory, /) -> None:
    """Write `greenroom.service`, a unit of systemd, and the `requirements.txt` to install.

    The service has a user of its own, may write to its own folder only, and listens on this machine only: a proxy in
    front of it has the certificate. A stop gives runs 20 seconds.

        greenroom deploy systemd agents
    """
    served = _write(directory, ["greenroom.service"])

    folder = shlex.quote(str(directory))
    own_user = "-p DynamicUser=yes -p User=greenroom -p StateDirectory=greenroom"
    _show_next_steps(
        "sudo python3 -m venv /opt/greenroom",
        f"sudo /opt/greenroom/bin/pip install --requirement {folder}/requirements.txt",
        f"sudo cp -rT {folder} {served}",
        f"sudo cp {folder}/greenroom.service /etc/systemd/system/",
        f"sudo systemd-run --pipe {own_user} /opt/greenroom/bin/greenroom keys create {served} "
        "--keys /var/lib/greenroom/keys.db --user NAME",
        "sudo systemctl enable --now greenroom",
    )


def _write(directory: Path, names: Sequence[str]) -> str:
    """Writes these files and the requirements. Returns the folder in which the apps are served there.

    Raises InvalidRequest for a folder without apps.
    """
    from greenroom.apps.find_apps import is_app, is_name
    from greenroom.cli.app_check.app_files import AppFiles

    if not directory.is_dir():
        raise InvalidRequest(f"{directory} is not a folder")
    files = AppFiles(directory)
    if not files.apps:
        raise InvalidRequest(f"There are no apps in {directory}. Make one with: greenroom init {directory}/my_agent")

    served = _AGENTS
    if is_app(directory):  # its name is the app's
        name = directory.resolve().name
        if not is_name(name):
            raise InvalidRequest(f"{name!r} can't be the name of an app: use letters, digits and _, and no digit first")
        served = f"/srv/{name}"

    texts = {name: _template(name).replace(_AGENTS, served) for name in names}
    texts["requirements.txt"] = _requirements(files)
    for name, text in texts.items():
        path = directory / name
        if not path.exists():
            path.write_text(text, encoding="utf-8")
            print_line(str(path))
        elif path.read_text(encoding="utf-8", errors="replace") != text:
            note(f"{path} exists already and stays as it is", "yellow")
            if name == "requirements.txt":
                note(f"It must install: {', '.join(text.splitlines())}", "yellow")
    return served


def _template(name: str) -> str:
    return (TEMPLATES / name.removeprefix(".")).read_text(encoding="utf-8")


def _requirements(files: AppFiles) -> str:
    """The lines of `requirements.txt`."""
    from greenroom.cli.app_check.packages import requirements_of

    extras, imported = requirements_of(files)
    of_greenroom = ",".join(sorted({*extras, *_SERVER_EXTRAS}))

    listed = {line for app_folder in files.apps for line in _listed_requirements(app_folder)}
    listed_names = {_distribution(line) for line in listed}
    others = {line for line in listed if _distribution(line) not in _REPLACED}
    others.update(name for name in imported if _distribution(name) not in listed_names)
    return "\n".join([f"greenroom[{of_greenroom}]=={__version__}", *sorted(others)]) + "\n"


def _listed_requirements(app_folder: Path) -> Iterator[str]:
    """Yields the requirements in an app's own `requirements.txt`, without comments and options of pip."""
    file = app_folder / "requirements.txt"
    if not file.is_file():
        return
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        requirement = re.sub(r"(^|\s)#.*", "", line).strip()
        if requirement[:1].isalnum():
            yield requirement


def _distribution(requirement: str) -> str:
    """Returns the normalized name of the distribution that a requirement names."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def _show_next_steps(*commands: str) -> None:
    note("\n".join(["\nThen, in a shell:", *(f"  {command}" for command in commands)]))
