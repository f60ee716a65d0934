"""The chart of `greenroom deploy helm`: Helm renders it, Kubernetes's schemas accept it, its parts fit together, and a
server starts with its variables."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import kubernetes_validate
import pytest
import yaml

from greenroom.server.configuration import Configuration, all_settings, load_configuration
from greenroom.server.endpoints import ENDPOINTS
from tests.cli.conftest import Cli
from tests.cli.test_serve import served
from tests.requirements import helm_path, kubernetes_models

_KUBERNETES = ("1.27.0", "1.37.0")
"""The oldest release that the chart allows, and the newest whose schemas are known."""

_MINIMAL: dict[str, Any] = {
    "image": {"repository": "registry.example.com/agents"},
    "database": {"existingSecret": "pg"},
    "artifacts": {"url": "s3://agents"},
    "variableSecrets": [],
}
_VALUES: dict[str, dict[str, Any]] = {
    "a Secret of one's own": {},
    "a Secret of the chart": {"database": {"existingSecret": "", "url": "postgresql://ann:secret@db:5432/chats\n"}},
    "an ingress below a path": {
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "example.com",
            "path": "/agents",
            "tlsSecret": "example-tls",
        },
        "settings": {"trusted_proxies": ["10.0.0.0/8", "fd00::/8"]},
    },
    "a route of a gateway": {
        "ingress": {
            "enabled": True,
            "gateways": [{"name": "public", "namespace": "gateways"}],
            "host": "example.com",
            "path": "/agents",
        },
        "service": {"port": 8080},
    },
    "scaled by CPU": {"autoscaling": {"by": "cpu", "maxReplicas": 5}},
    "scaled by runs": {"autoscaling": {"by": "runs", "runsPerReplica": 50}},
    "everything": {
        "image": {"repository": "r/agents", "tag": "2", "pullSecrets": [{"name": "registry"}]},
        "migrations": {"existingSecret": "pg-owner", "key": "owner-url"},
        "variableSecrets": ["models", "bucket"],
        "variables": {"AWS_REGION": "eu-central-1", "OTEL_SERVICE_NAME": "agents"},
        "webhookSecrets": {"existingSecret": "webhooks"},
        "settings": {
            "public_url": "https://agents.example.com",
            "allowed_hosts": ["agents.example.com", "desk"],
            "workers": "auto",
            "limits": {"runs_per_user": 5, "artifact_bytes": 5_000_000_000, "requests_per_second": 0.5},
            "auth": {"tokens": {"jwks_url": "https://login.example.com/jwks", "audiences": ["greenroom", "cli"]}},
        },
        "networkPolicy": {
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}],
            "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}}]}],
        },
        "serviceMonitor": {"enabled": True, "existingSecret": "metrics", "labels": {"release": "prometheus"}},
        "serviceAccount": {"annotations": {"iam.gke.io/gcp-service-account": "agents@example.com"}},
        "podAnnotations": {"example.com/owner": "support"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "agents", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    },
    "what is optional is off": {
        "migrations": {"enabled": False},
        "apiKeys": {"enabled": False},
        "settings": {"allow_anonymous": True, "log_format": None},
        "preStopSeconds": 0,
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "serviceAccount": {"create": False},
        "serviceMonitor": {"enabled": True},
    },
}
_OUTSIDE = {"pg", "pg-owner", "models", "bucket", "webhooks", "metrics", "registry", "example-tls"}
"""Secrets that these values name."""

_CUSTOM = {
    "HTTPRoute": "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute",
    "ScaledObject": "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject",
    "ServiceMonitor": "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor",
}
"""Kinds that aren't Kubernetes's own, with the modules that check them."""

_PAGE = Path(__file__).parents[2] / "docs" / "kubernetes.md"
_ON_THE_PAGE = re.findall(r"<!-- tested: values -->\n```yaml\n(.*?)```", _PAGE.read_text(), re.DOTALL)

_VARIABLES = re.compile(r"GREENROOM_[A-Z_]+")


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The chart of a folder with an app whose model needs no key."""
    folder = tmp_path_factory.mktemp("charts")
    cli = Cli(folder)
    assert cli("deploy", "helm", "agents").returncode == 0
    yield folder / "agents" / "chart"
    _rendered.cache_clear()


@pytest.fixture(params=_VALUES, ids=lambda name: name.replace(" ", "_"))
def manifests(request: pytest.FixtureRequest, chart: Path) -> list[dict[str, Any]]:
    return _rendered(chart, request.param)


@cache
def _rendered(chart: Path, name: str) -> list[dict[str, Any]]:
    done = _helm("template", "desk", str(chart), "--values=-", values=_VALUES[name])
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def _helm(*arguments: str, values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    text = yaml.safe_dump({**_MINIMAL, **values})
    return subprocess.run([helm_path(), *arguments], input=text, capture_output=True, text=True, check=False)


def _one(manifests: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [one for one in manifests if one["kind"] == kind]
    return found


def _of(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in manifests if one["kind"] == kind]


def _pods(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one["spec"]["template"]["spec"] for one in manifests if one["kind"] in ("Deployment", "Job")]


def _server(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    (container,) = _one(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    return container


def _configuration(manifests: list[dict[str, Any]]) -> Configuration:
    environment = {one["name"]: one.get("value", "postgresql://db/chats") for one in _server(manifests)["env"]}
    return load_configuration(environ=environment)


# rendering


def test_kubernetes_accepts_the_manifests(manifests: list[dict[str, Any]]) -> None:
    for manifest in manifests:
        if manifest["kind"] in _CUSTOM:
            continue
        for release in _KUBERNETES:
            kubernetes_validate.validate(manifest, release, strict=True)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("HTTPRoute", "a route of a gateway"),
        ("ScaledObject", "scaled by runs"),
        ("ServiceMonitor", "everything"),
    ],
)
def test_operators_accept_the_manifests(chart: Path, kind: str, name: str) -> None:
    node, packages = kubernetes_models()
    program = f"""
        const {{ {kind} }} = require({json.dumps(str(packages / _CUSTOM[kind]))});
        new {kind}(JSON.parse(require("node:fs").readFileSync(0, "utf8"))).validate();
    """
    manifest = json.dumps(_one(_rendered(chart, name), kind))
    checked = subprocess.run([node, "-e", program], input=manifest, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("name", _VALUES)
def test_helm_has_nothing_to_criticize(chart: Path, tmp_path: Path, name: str) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({**_MINIMAL, **_VALUES[name]}))
    linted = subprocess.run(
        [helm_path(), "lint", "--strict", "--quiet", str(chart), "--values", str(values)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"image": {}}, "image.repository is missing"),
        ({"database": {}}, "database.existingSecret is missing"),
        ({"database": {"url": "sqlite:///x.db"}}, "/database/url"),
        ({"artifacts": {}}, "artifacts.url is missing"),
        ({"artifacts": {"url": "file:///artifacts"}}, "/artifacts/url"),
        ({"ingress": {"enabled": True}}, "ingress.host is missing"),
        ({"serviceMonitor": {"enabled": True}}, "serviceMonitor.existingSecret is missing"),
        ({"settings": {"limits": {"run_per_user": 5}}}, "'run_per_user' not allowed"),
        ({"settings": {"port": 9000}}, "'port' not allowed"),
        ({"settings": {"log_level": "loud"}}, "/settings/log_level"),
        ({"settings": {"allow_anonymous": True}}, "apiKeys.enabled=false"),
        ({"replica": 3}, "'replica' not allowed"),
    ],
)
def test_wrong_values_are_refused(chart: Path, values: dict[str, Any], said: str) -> None:
    done = _helm("template", "desk", str(chart), "--values=-", values=values)
    assert done.returncode == 1
    assert said in done.stderr


def test_notes_show_how_to_begin(chart: Path) -> None:
    install = ("install", "desk", str(chart), "--dry-run=client", "--values=-")
    notes = _helm(*install, values={}).stdout.partition("NOTES:")[2]
    assert "exec deployment/desk -- greenroom keys create /srv/agents --user NAME" in notes
    assert "http://desk.default:80/" in notes

    below = _helm(*install, values=_VALUES["an ingress below a path"]).stdout.partition("NOTES:")[2]
    assert "https://example.com/agents/" in below
    assert "trusted_proxies" not in below


def test_the_values_on_the_page_are_valid(chart: Path) -> None:
    assert len(_ON_THE_PAGE) == 4
    for text in _ON_THE_PAGE:
        done = _helm("template", "agents", str(chart), "--values=-", values=yaml.safe_load(text))
        assert done.returncode == 0, done.stderr
        manifests = [one for one in yaml.safe_load_all(done.stdout) if one]
        assert _configuration(manifests).warnings == []
        for manifest in manifests:
            if manifest["kind"] not in _CUSTOM:
                kubernetes_validate.validate(manifest, _KUBERNETES[-1], strict=True)


# parts


def test_selectors_find_the_servers_alone(manifests: list[dict[str, Any]]) -> None:
    deployment = _one(manifests, "Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    selectors = [_one(manifests, "Service")["spec"]["selector"], deployment["spec"]["selector"]["matchLabels"]]
    selectors += [one["spec"]["selector"]["matchLabels"] for one in _of(manifests, "PodDisruptionBudget")]
    for policy in _of(manifests, "NetworkPolicy"):
        selectors.append(policy["spec"]["podSelector"]["matchLabels"])
        selectors.append(policy["spec"]["ingress"][1]["from"][0]["podSelector"]["matchLabels"])
    pod = deployment["spec"]["template"]["spec"]
    selectors += [one["labelSelector"]["matchLabels"] for one in pod["topologySpreadConstraints"]]
    for selector in selectors:
        assert selector.items() <= labels
        for job in _of(manifests, "Job"):
            assert not selector.items() <= job["spec"]["template"]["metadata"]["labels"].items()

    for monitor in _of(manifests, "ServiceMonitor"):
        service_labels = _one(manifests, "Service")["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service_labels.items()


def test_names_refer_to_what_is_there(manifests: list[dict[str, Any]]) -> None:
    service = _one(manifests, "Service")
    container = _server(manifests)
    ports = {port["name"] for port in container["ports"]}
    service_ports = {port["name"] for port in service["spec"]["ports"]}
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    for ingress in _of(manifests, "Ingress"):
        backend = ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
        assert backend["name"] == service["metadata"]["name"]
        assert backend["port"]["name"] in service_ports
    for route in _of(manifests, "HTTPRoute"):
        (backend,) = route["spec"]["rules"][0]["backendRefs"]
        assert backend["name"] == service["metadata"]["name"]
        assert backend["port"] in {port["port"] for port in service["spec"]["ports"]}
    assert len(_of(manifests, "Ingress")) + len(_of(manifests, "HTTPRoute")) <= 1
    for monitor in _of(manifests, "ServiceMonitor"):
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= service_ports
    for policy in _of(manifests, "NetworkPolicy"):
        assert {port["port"] for port in policy["spec"]["ingress"][0]["ports"]} <= ports
    for scaler in (*_of(manifests, "HorizontalPodAutoscaler"), *_of(manifests, "ScaledObject")):
        assert scaler["spec"]["scaleTargetRef"]["name"] == _one(manifests, "Deployment")["metadata"]["name"]
        assert "replicas" not in _one(manifests, "Deployment")["spec"]

    secrets = {one["metadata"]["name"] for one in _of(manifests, "Secret")} | _OUTSIDE
    assert set(_secret_names(manifests)) <= secrets
    accounts = {one["metadata"]["name"] for one in _of(manifests, "ServiceAccount")} | {"default"}
    assert _one(manifests, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] in accounts
    for pod in _pods(manifests):
        for one in pod["containers"]:
            assert {mount["name"] for mount in one["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def _secret_names(value: Any) -> Iterator[str]:
    """Yields the names in all references to Secrets."""
    if isinstance(value, list):
        for one in value:
            yield from _secret_names(one)
    if not isinstance(value, dict):
        return
    for key, one in value.items():
        match key:
            case "secretKeyRef" | "secretRef" | "credentials":
                yield one["name"]
            case "secretName":
                yield one
            case "imagePullSecrets":
                yield from (secret["name"] for secret in one)
            case _:
                yield from _secret_names(one)


def test_what_runs_has_few_rights(manifests: list[dict[str, Any]]) -> None:
    for pod in _pods(manifests):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False  # a Service `greenroom` would set GREENROOM_PORT to a URL
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"].keys() == {"requests", "limits"}


def test_secrets_are_in_secrets_alone(chart: Path) -> None:
    manifests = _rendered(chart, "a Secret of the chart")
    assert _one(manifests, "Secret")["stringData"] == {"url": "postgresql://ann:secret@db:5432/chats"}
    assert "secret@" not in yaml.safe_dump([one for one in manifests if one["kind"] != "Secret"])
    assert _of(manifests, "Job") == []  # it would run before the Secret exists
    values = yaml.safe_load((chart / "values.yaml").read_text())
    assert (values["database"]["url"], values["database"]["existingSecret"], values["variableSecrets"]) == ("", "", [])


# what the server is told


def test_variables_are_valid_settings(manifests: list[dict[str, Any]]) -> None:
    names = [one["name"] for one in _server(manifests)["env"]]
    assert len(names) == len(set(names))
    loaded = _configuration(manifests)
    assert loaded.warnings == []
    assert loaded.settings.auth.is_on or loaded.settings.allow_anonymous

    pod = _one(manifests, "Deployment")["spec"]["template"]["spec"]
    hook = _server(manifests).get("lifecycle")
    before_stop = int(hook["preStop"]["exec"]["command"][1]) if hook else 0
    assert before_stop + loaded.settings.grace_seconds + 10 <= pod["terminationGracePeriodSeconds"]


def test_settings_reach_the_server(chart: Path) -> None:
    settings = _configuration(_rendered(chart, "everything")).settings
    assert settings.limits.artifact_bytes == 5_000_000_000
    assert settings.limits.requests_per_second == 0.5
    assert settings.auth.tokens.audiences == ("greenroom", "cli")
    assert settings.workers == "auto"
    assert settings.webhook_secrets == "/etc/greenroom/webhooks/webhooks.toml"
    assert settings.auth.keys == settings.session_service == "postgresql://db/chats"

    for name in ("an ingress below a path", "a route of a gateway"):
        below = _configuration(_rendered(chart, name)).settings
        assert below.url_prefix == below.public_url == "https://example.com/agents"
    below = _configuration(_rendered(chart, "an ingress below a path")).settings
    assert below.trusted_proxies == ("10.0.0.0/8", "fd00::/8")


def test_all_settings_are_values_or_set_by_the_chart(chart: Path) -> None:
    schema = yaml.safe_load((chart / "values.schema.json").read_text())["properties"]["settings"]
    in_schema = set(_leaves(schema))
    templates = "".join(path.read_text() for path in (chart / "templates").iterdir())
    set_by_chart = set(_VARIABLES.findall(templates)) - {"GREENROOM_URL_PREFIX", "GREENROOM_PUBLIC_URL"}
    known = {setting.key: setting.variable for setting in all_settings()}
    assert in_schema <= known.keys()
    left = {variable for key, variable in known.items() if key not in in_schema}
    assert left == {*set_by_chart, "GREENROOM_HOST", "GREENROOM_REPLICA_ADDRESS"}  # by the image, and by the server


def _leaves(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, one in schema["properties"].items():
        if "properties" in one:
            yield from _leaves(one, f"{prefix}{name}.")
        else:
            yield prefix + name


def test_probes_ask_open_endpoints(manifests: list[dict[str, Any]]) -> None:
    container = _server(manifests)
    ports = {port["name"] for port in container["ports"]}
    open_paths = {
        path for endpoint in ENDPOINTS if endpoint.access == "open" for path in (endpoint.path, *endpoint.aliases)
    }
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[name]["httpGet"]["path"] in open_paths
        assert container[name]["httpGet"]["port"] in ports
        allowed_hosts = _configuration(manifests).settings.allowed_hosts
        headers = {header["name"]: header["value"] for header in container[name]["httpGet"].get("httpHeaders", ())}
        assert headers.get("Host") == next(iter(allowed_hosts), None)


@pytest.fixture
async def database_urls(empty_postgres_uri: str) -> AsyncIterator[tuple[str, str]]:
    """URLs of a database: of its owner, and of a role that the SQL on the page makes."""
    (sql,) = re.findall(r"<!-- tested: roles -->\n```sql\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    owner = await asyncpg.connect(empty_postgres_uri)
    await owner.execute(sql)
    yield empty_postgres_uri, empty_postgres_uri.replace("postgres@", "servers:secret@")
    await owner.execute("DROP OWNED BY servers")
    await owner.execute("DROP ROLE servers")
    await owner.close()


async def test_a_server_starts_with_the_variables_of_the_chart(
    chart: Path, cli: Cli, database_urls: tuple[str, str]
) -> None:
    owner_url, url_of_servers = database_urls
    manifests = _rendered(chart, "scaled by runs")
    (migrations,) = _one(manifests, "Job")["spec"]["template"]["spec"]["containers"]
    arguments = [argument.replace("/srv/", "") for argument in migrations["args"]]
    migrated = cli(*arguments, **{one["name"]: owner_url for one in migrations["env"]})
    assert migrated.returncode == 0, migrated.stderr

    environment = {one["name"]: one.get("value", url_of_servers) for one in _server(manifests)["env"]}
    assert environment["GREENROOM_ARTIFACT_SERVICE"] == "s3://agents"
    environment["GREENROOM_ARTIFACT_SERVICE"] = (cli.folder / "artifacts").as_uri()
    cli.environment |= {**environment, "GREENROOM_HOST": "0.0.0.0"}
    scopes = ("run", "read", "debug")
    key = cli("keys", "create", "agents", "--user", "u", "--scopes", *scopes).stdout.strip()
    with served(cli, "agents") as (url, _, _):
        async with httpx.AsyncClient(base_url=url, timeout=30) as client:
            for name in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert (await client.get(_server(manifests)[name]["httpGet"]["path"])).status_code == 200
            assert (await client.get("/metrics")).status_code == 401

            client.headers["authorization"] = f"Bearer {key}"
            assert (await client.get("/metrics")).status_code == 200
            assert (await client.post("/apps/parrot/users/u/sessions/s1")).status_code == 200
            message = {"role": "user", "parts": [{"text": "hello"}]}
            body = {"appName": "parrot", "userId": "u", "sessionId": "s1", "newMessage": message}
            assert "hello" in (await client.post("/run", json=body)).text

        (trigger,) = _one(manifests, "ScaledObject")["spec"]["triggers"]
        assert trigger["metadata"]["connectionFromEnv"] in environment
        async with asyncio.timeout(5):
            while await _count(url_of_servers, trigger["metadata"]["query"]):  # until the run's end is stored
                await asyncio.sleep(0.02)


async def _count(url: str, query: str) -> int:
    connection = await asyncpg.connect(url)
    count = await connection.fetchval(query)
    await connection.close()
    return count


# the command


def test_the_chart_knows_the_models_variables(cli: Cli) -> None:
    cli.write("agents/two/root_agent.yaml", "name: two\nmodel: gpt-5-mini\n")
    done = cli("deploy", "helm", "agents")
    assert "kubectl create secret generic models --from-env-file=models.env  # OPENAI_API_KEY=…" in done.stderr
    written = yaml.safe_load((cli.folder / "agents/chart/values.yaml").read_text())
    assert written["variableSecrets"] == ["models"]


def test_a_changed_chart_stays(cli: Cli) -> None:
    first = cli("deploy", "helm", "agents")
    folder = cli.folder / "agents"
    assert {f"agents/{path.relative_to(folder)}" for path in (folder / "chart").rglob("*") if path.is_file()} < set(
        first.stdout.split()
    )
    (folder / "chart" / "values.yaml").write_text("mine")
    again = cli("deploy", "helm", "agents")
    assert again.stdout == ""
    assert "chart/values.yaml exists already and stays as it is" in again.stderr
    assert (folder / "chart" / "values.yaml").read_text() == "mine"
    shutil.rmtree(folder / "chart")


def test_the_chart_of_one_app_serves_its_folder(cli: Cli) -> None:
    done = cli("deploy", "helm", "agents/parrot")
    assert "keys create /srv/parrot --user NAME" in done.stderr
    for file in (cli.folder / "agents" / "parrot" / "chart").rglob("*.*"):
        assert "/srv/agents" not in file.read_text()
