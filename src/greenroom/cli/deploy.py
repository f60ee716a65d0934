"""`greenroom deploy`: files that run the apps of a folder elsewhere."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import msgspec
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

_CHART = tuple(
    f"chart/{path}"
    for path in (
        "Chart.yaml",
        "values.yaml",
        "values.schema.json",
        "templates/NOTES.txt",
        "templates/_helpers.tpl",
        "templates/autoscaling.yaml",
        "templates/deployment.yaml",
        "templates/httproute.yaml",
        "templates/ingress.yaml",
        "templates/migration-job.yaml",
        "templates/networkpolicy.yaml",
        "templates/poddisruptionbudget.yaml",
        "templates/secret.yaml",
        "templates/service.yaml",
        "templates/serviceaccount.yaml",
        "templates/servicemonitor.yaml",
    )
)

_MONITORING = ("prometheus.yaml", "greenroom-alerts.yaml", "greenroom-dashboard.json")

_SETTINGS_OF_CHART = frozenset(
    {
        "artifact_service",
        "auth.keys",
        "grace_seconds",
        "host",
        "port",
        "replica_address",
        "session_service",
        "webhook_secrets",
    }
)
"""Settings that the chart sets itself, from other values."""

_REPLACED = ("google-adk", "greenroom")
"""Distributions that apps list, in place of which greenroom is installed."""

app = App(
    name="deploy",
    help="Write the files that run the apps of a folder in containers, in Kubernetes or on a machine of your own.",
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
    served = _write(directory, _templates("Dockerfile", ".dockerignore"))

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
    served = _write(directory, _templates("compose.yaml", "Dockerfile", ".dockerignore"))

    _show_next_steps(
        f"cd {shlex.quote(str(directory))}",
        'echo "POSTGRES_PASSWORD=$(openssl rand -hex 24)" >> .env',
        'echo "S3_PASSWORD=$(openssl rand -hex 24)" >> .env',
        "docker compose build",
        f"docker compose run --rm greenroom-1 keys create {served} --user NAME",
        "docker compose up --detach --wait",
    )


@app.command
def helm(directory: _Directory, /) -> None:
    """Write `chart`, a chart of Helm for Kubernetes, and the files of `greenroom deploy docker`, whose image it uses.

    Servers on your PostgreSQL and object store, with probes, a disruption budget, a network policy, a job for
    migrations, and if you want an ingress and autoscaling. `chart/values.yaml` describes the values; passwords and keys
    are in Secrets.

        greenroom deploy helm agents
    """
    variables = _variables_of_models(_apps_of(directory))
    texts = _templates(*_CHART, "Dockerfile", ".dockerignore")
    texts["chart/values.schema.json"] = _with_settings(texts["chart/values.schema.json"])
    if variables:
        no_secrets = "variableSecrets: [] # - models"
        assert no_secrets in texts["chart/values.yaml"]
        texts["chart/values.yaml"] = texts["chart/values.yaml"].replace(no_secrets, "variableSecrets: [models]")
    served = _write(directory, texts)

    secrets = {"database": ["url=postgresql://…"]}
    if variables:
        secrets["models"] = [f"{name}=…" for name in variables]
    _show_next_steps(
        f"docker build --tag REGISTRY/agents:1 {shlex.quote(str(directory))}",
        "docker push REGISTRY/agents:1",
        *(
            f"kubectl create secret generic {name} --from-env-file={name}.env  # {', '.join(lines)}"
            for name, lines in secrets.items()
        ),
        f"helm upgrade --install agents {shlex.quote(str(directory / 'chart'))} --set image.repository=REGISTRY/agents "
        "--set image.tag=1 --set database.existingSecret=database --set artifacts.url=s3://BUCKET",
        f"kubectl exec deployment/agents -- greenroom keys create {served} --user NAME",
    )


@app.command
def systemd(directory: _Directory, /) -> None:
    """Write `greenroom.service`, a unit of systemd, and the `requirements.txt` to install.

    The service has a user of its own, may write to its own folder only, and listens on this machine only: a proxy in
    front of it has the certificate. A stop gives runs 20 seconds.

        greenroom deploy systemd agents
    """
    served = _write(directory, _templates("greenroom.service"))

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


@app.command
def monitoring(
    directory: Annotated[
        Path, Parameter(name="DIR", help="The folder to write to. Files that are already there are not replaced.")
    ],
    /,
) -> None:
    """Write a dashboard of Grafana, and a configuration of Prometheus with alerts.

    Prometheus reads the metrics of each server at `/metrics`. Change the addresses in `prometheus.yaml` and the limits
    in `greenroom-alerts.yaml` to your own, and import `greenroom-dashboard.json` in Grafana.

        greenroom deploy monitoring monitoring
    """
    _write_files(directory, {name: _template(f"monitoring/{name}") for name in _MONITORING})

    folder = shlex.quote(str(directory))
    _show_next_steps(
        f"promtool check config {folder}/prometheus.yaml",
        f"prometheus --config.file={folder}/prometheus.yaml",
    )


def _apps_of(directory: Path) -> AppFiles:
    """Raises InvalidRequest for a folder without apps."""
    from greenroom.cli.app_check.app_files import AppFiles

    if not directory.is_dir():
        raise InvalidRequest(f"{directory} is not a folder")
    files = AppFiles(directory)
    if not files.apps:
        raise InvalidRequest(f"There are no apps in {directory}. Make one with: greenroom init {directory}/my_agent")
    return files


def _templates(*names: str) -> dict[str, str]:
    return {name: _template(name) for name in names}


def _template(name: str) -> str:
    return (TEMPLATES / name.removeprefix(".")).read_text(encoding="utf-8")


def _write(directory: Path, texts: Mapping[str, str]) -> str:
    """Writes these files and the requirements. Returns the folder in which the apps are served there.

    Raises InvalidRequest for a folder without apps.
    """
    from greenroom.apps.find_apps import is_app, is_name

    files = _apps_of(directory)
    served = _AGENTS
    if is_app(directory):  # its name is the app's
        name = directory.resolve().name
        if not is_name(name):
            raise InvalidRequest(f"{name!r} can't be the name of an app: use letters, digits and _, and no digit first")
        served = f"/srv/{name}"

    texts = {name: text.replace(_AGENTS, served) for name, text in texts.items()}
    texts["requirements.txt"] = _requirements(files)
    _write_files(directory, texts)
    return served


def _write_files(directory: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = directory / name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print_line(str(path))
        elif path.read_text(encoding="utf-8", errors="replace") != text:
            note(f"{path} exists already and stays as it is", "yellow")
            if name == "requirements.txt":
                note(f"It must install: {', '.join(text.splitlines())}", "yellow")


def _variables_of_models(files: AppFiles) -> list[str]:
    """Returns the variables that the apps' models need, such as those of their keys."""
    from greenroom.cli.app_check.packages import models_named_in
    from greenroom.models.by_name import LLMRegistry

    return sorted({variable for model in models_named_in(files) for variable in LLMRegistry.variables_of(model)})


def _with_settings(schema_text: str) -> str:
    """Adds the server's settings to the schema of a chart's values."""
    from greenroom.server.configuration import all_settings

    schema = json.loads(schema_text)
    root = schema["properties"]["settings"] = _table()
    for setting in all_settings():
        if setting.key in _SETTINGS_OF_CHART:
            continue
        *tables, name = setting.key.split(".")
        table = root
        for table_name in tables:
            table = table["properties"].setdefault(table_name, _table())
        # Expressions in Go have no lookaheads, so Helm would refuse some patterns. The server checks them.
        table["properties"][name] = _without_patterns(msgspec.json.schema(setting.type))
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _without_patterns(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_patterns(one) for one in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {key: _without_patterns(one) for key, one in cast("dict[str, Any]", schema).items() if key != "pattern"}


def _table() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


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
