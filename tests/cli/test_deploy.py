"""Files that run the apps of a folder elsewhere. `test_deploy_image.py` builds the image and runs it, and
`tests/deployment/test_topology.py` the services of `compose.yaml`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from greenroom.cli.deploy import TEMPLATES
from greenroom.server.configuration import all_settings, load_configuration
from greenroom.server.settings import OTHER_VARIABLES
from greenroom.server.webhook_sender import WebhookSecrets
from greenroom.version import __version__
from tests.cli.compose_file import read_compose
from tests.cli.conftest import Cli

_DOCS = Path(__file__).parents[2] / "docs"
_SERVER_EXTRAS = {"auth", "postgres", "telemetry", "webhooks"}


@pytest.fixture
def folder(cli: Cli, tmp_path: Path) -> Path:
    cli("init", str(tmp_path / "served" / "desk"), "--template", "workflow")
    return tmp_path / "served"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("docker", [".dockerignore", "Dockerfile", "requirements.txt"]),
        ("compose", [".dockerignore", "Dockerfile", "compose.yaml", "requirements.txt"]),
        ("systemd", ["greenroom.service", "requirements.txt"]),
    ],
)
def test_files_are_written_once(cli: Cli, folder: Path, kind: str, names: list[str]) -> None:
    done = cli("deploy", kind, str(folder))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{folder}/{name}" for name in names]
    assert sorted(path.name for path in folder.iterdir() if path.is_file()) == names

    (folder / "requirements.txt").write_text("mine")
    again = cli("deploy", kind, str(folder))
    assert (again.returncode, again.stdout) == (0, "")
    assert f"{folder}/requirements.txt exists already and stays as it is\nIt must install: greenroom[" in again.stderr
    assert (folder / "requirements.txt").read_text() == "mine"


def test_an_app_is_served_below_its_own_name(cli: Cli, folder: Path) -> None:
    done = cli("deploy", "docker", str(folder / "desk"))
    assert "keys create /srv/desk --user NAME" in done.stderr
    text = (folder / "desk" / "Dockerfile").read_text()
    assert 'CMD ["serve", "/srv/desk"]' in text
    assert "/srv/agents" not in text


@pytest.mark.parametrize("kind", ["docker", "compose", "systemd"])
def test_a_folder_without_apps_is_refused(cli: Cli, tmp_path: Path, kind: str) -> None:
    (tmp_path / "empty").mkdir()
    done = cli("deploy", kind, str(tmp_path / "empty"))
    assert done.returncode == 1
    assert f"greenroom init {tmp_path}/empty/my_agent" in done.stderr
    assert list((tmp_path / "empty").iterdir()) == []
    assert "is not a folder" in cli("deploy", kind, str(tmp_path / "nowhere")).stderr


def test_requirements_are_those_of_the_apps(cli: Cli, tmp_path: Path) -> None:
    cli.write(
        "served/one/agent.py",
        """
        import json
        import bs4
        import httpx
        from google.adk.agents import LlmAgent
        from google.adk.tools.mcp_tool import McpToolset
        from .prices import PRICES
        try:
            import numpy
        except ImportError:
            numpy = None
        toolset = McpToolset(connection_params=None)
        root_agent = LlmAgent(name="one", model="claude-sonnet-5", tools=[toolset])
        """,
    )
    cli.write("served/one/prices.py", "import pandas\nPRICES = {}\n")
    cli.write("served/one/tests.py", "import pytest\n")
    cli.write("served/two/root_agent.yaml", "name: two\nmodel: gpt-5-mini\n")
    listed = "# mine\ngoogle_adk[eval]>=1.2\n--pre\n  BeautifulSoup4>=4.12,<5  # pages\n\nlxml; python_version > '3'\n"
    cli.write("served/one/requirements.txt", listed)
    cli("deploy", "docker", str(tmp_path / "served"))

    first, *others = (tmp_path / "served" / "requirements.txt").read_text().splitlines()
    greenroom = Requirement(first)
    assert (greenroom.name, str(greenroom.specifier)) == ("greenroom", f"=={__version__}")
    assert greenroom.extras == _SERVER_EXTRAS | {"anthropic", "mcp", "openai"}
    assert others == ["BeautifulSoup4>=4.12,<5", "httpx", "lxml; python_version > '3'", "pandas"]


def test_variables_of_all_files_are_settings() -> None:
    known = {setting.variable for setting in all_settings()} | set(OTHER_VARIABLES)
    known |= {f"{variable}_FILE" for variable in known}
    pages = [_DOCS / f"{name}.md" for name in ("deployment", "kubernetes", "cloud-run", "proxies")]
    for file in filter(Path.is_file, [*TEMPLATES.rglob("*"), *pages]):
        used = set(re.findall(r"\bGREENROOM_[A-Z_]+", file.read_text()))
        assert used <= known, file.name


# compose.yaml


def test_the_variables_of_both_servers_are_valid_settings(cli: Cli, folder: Path, tmp_path: Path) -> None:
    compose = _compose(cli, folder)
    assert compose["services"]["greenroom-1"] == compose["services"]["greenroom-2"]

    environment = compose["services"]["greenroom-1"]["environment"]
    assert all(isinstance(value, str) for value in environment.values())
    loaded = load_configuration(environ=environment)
    assert loaded.warnings == []
    assert loaded.settings.session_service == "postgresql://greenroom:secret1@postgres/greenroom"
    assert loaded.settings.artifact_service == "s3://greenroom"
    assert loaded.settings.public_url is None
    grace = compose["services"]["greenroom-1"]["stop_grace_period"]
    assert loaded.settings.grace_seconds + 5 < float(grace.removesuffix("s"))

    elsewhere = _compose(cli, folder, GREENROOM_SESSION_SERVICE="postgresql://db/chats")
    assert elsewhere["services"]["greenroom-1"]["environment"]["GREENROOM_SESSION_SERVICE"] == "postgresql://db/chats"


@pytest.mark.parametrize("text", ["", '"*" = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]'])
def test_secrets_of_webhooks_come_from_a_variable(cli: Cli, folder: Path, tmp_path: Path, text: str) -> None:
    secrets = tmp_path / "webhooks.toml"
    secrets.write_text(_compose(cli, folder, WEBHOOK_SECRETS=text)["configs"]["webhooks"]["content"])
    assert len(WebhookSecrets(str(secrets)).signers("desk")) == bool(text)


def test_what_services_refer_to_is_there(cli: Cli, folder: Path) -> None:
    compose = _compose(cli, folder)
    services = compose["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        assert {config["source"] for config in service.get("configs", ())} <= compose["configs"].keys()
        volumes = {volume.partition(":")[0] for volume in service.get("volumes", ())}
        assert volumes <= compose["volumes"].keys()
    assert [name for name, service in services.items() if "ports" in service] == ["balancer"]
    assert [name for name, service in services.items() if "profiles" in service] == ["collector"]

    collector = yaml.safe_load(compose["configs"]["collector"]["content"])
    assert collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"].endswith(":4318")


def test_missing_passwords_are_reported(cli: Cli, folder: Path) -> None:
    with pytest.raises(LookupError, match=r"set it in \.env"):
        _compose(cli, folder, POSTGRES_PASSWORD="")


def _compose(cli: Cli, folder: Path, **environment: str) -> Any:
    if not (folder / "compose.yaml").exists():
        cli("deploy", "compose", str(folder))
    return read_compose(folder, **environment)


# greenroom.service


def test_systemd_accepts_the_unit(cli: Cli, folder: Path, tmp_path: Path) -> None:
    cli("deploy", "systemd", str(folder))
    unit = (folder / "greenroom.service").read_text()
    variables = dict(re.findall(r"^Environment=(\w+)=(.*)$", unit, re.MULTILINE))
    loaded = load_configuration(environ=variables)
    assert loaded.warnings == []
    stop_seconds = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert stop_seconds is not None
    assert loaded.settings.grace_seconds + 5 < float(stop_seconds[1])

    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return  # not a machine with systemd
    program = str(Path(sys.executable).with_name("greenroom"))
    file = tmp_path / "greenroom.service"
    file.write_text(unit.replace("/opt/greenroom/bin/greenroom", program))
    verified = subprocess.run([analyze, "verify", str(file)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    security = [analyze, "security", "--offline=yes", "--threshold=20", "--no-pager", str(file)]
    rated = subprocess.run(security, capture_output=True, text=True, check=False)
    assert rated.returncode == 0, rated.stdout[-300:]
