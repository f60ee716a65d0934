"""Settings from flags, variables and a file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from greenroom.errors import ConfigurationError
from greenroom.server.configuration import Configuration, all_settings, find_file, load_configuration
from greenroom.server.settings import CorsSettings, LimitSettings, ServerSettings, ServeSettings, TokenSettings
from tests.server.conftest import Serve


def write(folder: Path, text: str) -> Path:
    file = folder / "greenroom.toml"
    file.write_text(text)
    return file


def load(folder: Path | None = None, text: str = "", **given: Any) -> Configuration:
    file = write(folder, text) if folder is not None else None
    return load_configuration(file=file, **given)


def faults(*args: Any, **given: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(*args, **given)
    return caught.value.faults


def test_without_anything_the_defaults_hold() -> None:
    loaded = load_configuration()
    assert loaded.settings == ServeSettings()
    assert {value.origin for value in loaded.values} == {"default"}


def test_flag_beats_variable_beats_file_beats_default(tmp_path: Path) -> None:
    text = "port = 1\nhost = 'file'\nlog_level = 'error'\n"
    environ = {"GREENROOM_PORT": "2", "GREENROOM_HOST": "variable"}
    loaded = load(tmp_path, text, environ=environ, flags={"port": 3})
    assert (loaded.settings.port, loaded.settings.host, loaded.settings.log_level) == (3, "variable", "error")
    origins = {value.setting.key: value.origin for value in loaded.values}
    assert origins["port"] == "flag --port"
    assert origins["host"] == "variable GREENROOM_HOST"
    assert origins["log_level"] == f"{tmp_path}/greenroom.toml:3"
    assert origins["reload"] == "default"


SOME: dict[str, tuple[str, str, Any]] = {
    "host": ("0.0.0.0", '"0.0.0.0"', "0.0.0.0"),
    "port": ("9", "9", 9),
    "session_service": ("memory://", '"memory://"', "memory://"),
    "reload": ("false", "false", False),
    "log_level": ("error", '"error"', "error"),
    "log_format": ("json", '"json"', "json"),
    "cors.origins": ("https://a, https://b", '["https://a", "https://b"]', ("https://a", "https://b")),
    "cors.max_age": ("7", "7", 7),
    "cors.allow_credentials": ("false", "false", False),
    "on_disconnect": ("cancel", '"cancel"', "cancel"),
    "run_deadline_seconds": ("1.5", "1.5", 1.5),
    "grace_seconds": ("2", "2", 2.0),
}


@pytest.mark.parametrize("dotted", SOME)
def test_variable_and_file_say_the_same(tmp_path: Path, dotted: str) -> None:
    in_variable, in_file, meant = SOME[dotted]
    (row,) = [row for row in all_settings() if row.key == dotted]
    by_variable = load_configuration(environ={row.variable: in_variable})
    by_file = load(tmp_path, f"{dotted} = {in_file}")
    by_flag = load_configuration(flags={dotted: meant})
    assert by_variable.settings == by_file.settings == by_flag.settings != ServeSettings()
    assert next(value.value for value in by_file.values if value.setting is row) == meant


def test_names_are_made_of_the_fields(tmp_path: Path) -> None:
    rows = {row.key: row for row in all_settings()}
    assert (rows["max_body_bytes"].flag, rows["max_body_bytes"].variable) == (
        "--max-body-bytes",
        "GREENROOM_MAX_BODY_BYTES",
    )
    assert (rows["cors.max_age"].flag, rows["cors.max_age"].variable) == ("--cors-max-age", "GREENROOM_CORS_MAX_AGE")
    assert rows["cors.origins"].flag == "--allow-origins"
    for unique in ("flag", "variable", "key"):
        assert len({getattr(row, unique) for row in rows.values()}) == len(rows)
    for row in rows.values():
        assert row.help, f"{row.key} has no help"
        assert row.help.endswith("."), row.key


def test_nested_classes_are_tables(tmp_path: Path) -> None:
    loaded = load(tmp_path, "max_body_bytes = 5\n[cors]\nmapping = '/api'\nmax_age = 9\n")
    assert loaded.settings == ServeSettings(max_body_bytes=5, cors=CorsSettings(mapping="/api", max_age=9))


def test_all_faults_are_reported_at_once_with_file_and_line(tmp_path: Path) -> None:
    text = """# settings
host = "::1"

port = 'many'
max_body_byte = 5
[cors]
origins = [
  "https://a",
  5,
]
max_ages = 1
grace_seconds = 2

[nowhere]
a = 1
"""
    file = f"{tmp_path}/greenroom.toml"
    assert faults(tmp_path, text, environ={"GREENROOM_GRACE_SECONDS": "-1"}) == [
        f"{file}:5: there is no setting max_body_byte. Did you mean max_body_bytes?",
        f"{file}:11: there is no setting cors.max_ages. Did you mean cors.max_age?",
        f"{file}:12: there is no setting cors.grace_seconds. Did you mean grace_seconds?",
        f"{file}:14: there is no setting nowhere.",
        f"{file}:4: port must be a whole number from 0 to 65535, not 'many'",
        f"{file}:7: cors.origins must be a list (each item: text), not ['https://a', 5]",
        "variable GREENROOM_GRACE_SECONDS: grace_seconds must be a number, at least 0, not '-1'",
    ]


def test_types_in_a_file_are_taken_by_the_letter(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, 'reload = "false"')
    assert fault.endswith("reload must be true or false, not 'false'")
    (fault,) = faults(tmp_path, "cors = 5")
    assert "there is no setting cors." in fault
    (fault,) = faults(flags={"port": 70000})
    assert fault == "flag --port: port must be a whole number from 0 to 65535, not 70000"


def test_what_is_no_toml_is_said_to_be_none(tmp_path: Path) -> None:
    (fault,) = faults(tmp_path, "port = = 5")
    assert "greenroom.toml is not valid TOML" in fault
    assert "line 1" in fault
    (tmp_path / "greenroom.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="can't be read"):
        load_configuration(file=tmp_path / "greenroom.toml")


def test_unknown_variables_are_warned_of() -> None:
    environ = {"GREENROOM_PROT": "1", "GREENROOM_DEBUG": "1", "GREENROOM_PORT_FILE": "", "OTHER": "1"}
    assert load_configuration(environ=environ).warnings == [
        "GREENROOM_PROT is not a setting of greenroom. Did you mean GREENROOM_PORT?"
    ]


def test_an_empty_variable_counts_as_none() -> None:
    assert load_configuration(environ={"GREENROOM_PORT": ""}).settings.port == 8000


def test_a_value_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "address").write_text("postgresql://ada:hunter2@db/x\n")
    loaded = load_configuration(environ={"GREENROOM_SESSION_SERVICE_FILE": str(tmp_path / "address")})
    assert loaded.settings.session_service == "postgresql://ada:hunter2@db/x"
    (fault,) = faults(environ={"GREENROOM_SESSION_SERVICE_FILE": str(tmp_path / "none")})
    assert fault.startswith("variable GREENROOM_SESSION_SERVICE_FILE: ")


def test_passwords_are_never_shown(tmp_path: Path) -> None:
    text = "session_service = 'postgresql://ada:hunter2@db/x'"
    loaded = load(tmp_path, text)
    shown = {value.setting.key: value.shown for value in loaded.values}
    assert shown["session_service"] == "postgresql://ada:********@db/x"
    assert (shown["source_dir"], shown["limits.runs_per_app"], shown["reload"]) == ("DIR", "none", "true")
    (fault,) = faults(environ={"GREENROOM_PORT": "postgresql://ada:hunter2@db/x"})
    assert fault.endswith("not 'postgresql://ada:********@db/x'")


def test_a_list_is_commas_or_json_in_a_variable() -> None:
    by_json = load_configuration(environ={"GREENROOM_CORS_HEADERS": '["a", "b,c"]'})
    assert by_json.settings.cors.headers == ("a", "b,c")
    (fault,) = faults(environ={"GREENROOM_CORS_HEADERS": "[a"})
    assert fault.endswith("cors.headers must be a list (each item: text), not '[a'")


def test_the_served_folder_comes_before_the_current_one(tmp_path: Path) -> None:
    served = tmp_path / "served"
    current = tmp_path / "current"
    for folder in (served, current):
        folder.mkdir()
    assert find_file(served, current) is None
    at_current = write(current, "")
    assert find_file(served, current) == at_current
    at_served = write(served, "")
    assert find_file(served, current) == at_served


@pytest.mark.parametrize("given", [["openai"], ("openai",), {"openai"}, frozenset({"openai"})])
def test_sequences_become_tuples(given: Any) -> None:
    lists: dict[str, Any] = {"origins": ["*"], "methods": ["GET"]}
    more: dict[str, Any] = {"allowed_hosts": ["a", "b"], "cors": CorsSettings(**lists)}
    settings = ServerSettings(gates=given, **more)
    assert (settings.gates, settings.allowed_hosts) == (("openai",), ("a", "b"))
    assert (settings.cors.origins, settings.cors.methods) == (("*",), ("GET",))
    assert replace(settings, edit=True) == ServerSettings(
        gates=("openai",), allowed_hosts=("a", "b"), cors=settings.cors, edit=True
    )


async def test_a_server_of_settings_with_lists_describes_itself(serve: Serve) -> None:
    server = await serve(gates=["openai"])
    assert "/v1/chat/completions" in (await server.client.get("/openapi.json")).json()["paths"]


@pytest.mark.parametrize(
    ("kind", "given", "fault"),
    [
        (ServerSettings, {"gates": "openai"}, "gates must be a list (each item: a2a, ag_ui"),
        (ServerSettings, {"gates": ["opneai"]}, "gates must be a list"),
        (
            ServerSettings,
            {"allowed_hosts": "example.com"},
            "allowed_hosts must be a list (each item: text), not 'examp",
        ),
        (ServerSettings, {"allowed_hosts": [1]}, "allowed_hosts must be a list"),
        (ServerSettings, {"max_body_bytes": "64"}, "max_body_bytes must be a whole number, at least 1, not '64'"),
        (ServerSettings, {"keep_alive_seconds": 0}, "keep_alive_seconds must be a number above 0, not 0"),
        (ServerSettings, {"edit": "yes"}, "edit must be true or false, not 'yes'"),
        (ServerSettings, {"on_disconnect": "stop"}, "on_disconnect must be continue or cancel, not 'stop'"),
        (ServerSettings, {"cors": None}, "cors must be of the type CorsSettings, not None"),
        (ServerSettings, {"auth": CorsSettings()}, "auth must be of the type AuthSettings"),
        (ServeSettings, {"port": 70000}, "port must be a whole number from 0 to 65535, not 70000"),
        (ServeSettings, {"session_service": 5}, "session_service must be text, not 5"),
        (CorsSettings, {"origins": "*"}, "CorsSettings: origins must be a list (each item: text), not '*'"),
        (CorsSettings, {"max_age": -1}, "max_age must be a whole number, at least 0, not -1"),
        (TokenSettings, {"algorithms": ["HS256"]}, "algorithms must be a list (each item: RS256"),
        (LimitSettings, {"runs_per_user": 0}, "runs_per_user must be a whole number, at least 1, not 0"),
    ],
)
def test_values_of_other_types_are_refused_at_once(kind: type[Any], given: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(fault)):
        kind(**given)


def test_all_faults_are_named_without_passwords() -> None:
    wrong: dict[str, Any] = {"port": "x", "session_service": ["postgresql://ann:secret@db/x"]}
    with pytest.raises(ConfigurationError) as caught:
        ServeSettings(**wrong)
    named = {fault.partition(" must ")[0] for fault in caught.value.faults}
    assert named == {"ServeSettings: session_service", "ServeSettings: port"}
    assert "secret" not in str(caught.value)


def test_files_may_be_paths(tmp_path: Path) -> None:
    file: Any = tmp_path / "prices.toml"
    assert ServerSettings(prices=file).prices == str(file)
