from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App

from greenroom import __version__
from greenroom.cli.commands import app, join_boolean_values
from tests.cli.conftest import Cli

_REPORT = "; import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))"


def test_version(cli: Cli) -> None:
    done = cli.run_process("--version")
    assert (done.returncode, done.stdout.strip()) == (0, __version__)


@pytest.mark.parametrize(
    "command",
    ["", "serve", "run", "models", "models pull", "models list", "sessions", "sessions list", "sessions show"],
)
def test_every_command_has_help(cli: Cli, command: str) -> None:
    run = cli.run_process if command in ("", "serve") else cli
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert f"Usage: greenroom {command}".strip() in done.stdout
    assert done.stderr == ""


def test_help_has_no_flags_and_defaults_that_say_nothing(cli: Cli) -> None:
    for command in ("replay", "eval", "sessions migrate", "record"):
        text = cli(*command.split(), "--help").stdout
        for noise in ("--empty-", "--no-stream", "--no-own-model", "--no-restart", "[default: ()]", "[default: False]"):
            assert noise not in text, (command, noise)
        assert text.rindex("--debug") > text.rindex("Parameters ─")
    assert "--no-run-tools" in cli("replay", "--help").stdout
    served = cli.run_process("serve", "--help").stdout
    assert "--no-edit" in served
    assert "[default: 127.0.0.1]" in served


def test_help_imports_no_heavy_modules(cli: Cli) -> None:
    cli.write("sitecustomize.py", "pass" + _REPORT)
    cli.environment["PYTHONPATH"] += f":{cli.folder}"
    for args in (["--help"], ["serve", "--help"], ["run", "--help"]):
        loaded = set(cli.run_process(*args).stderr.split())
        assert "cyclopts" in loaded
        assert not loaded & {"starlette", "uvicorn", "xllamacpp", "obstore", "openai", "pydantic", "sqlite3"}


@pytest.mark.parametrize(("typed", "completed"), [(["schem"], "schema"), (["init", "shop", "--temp"], "--template")])
def test_bash_completes_commands_and_options(cli: Cli, tmp_path: Path, typed: list[str], completed: str) -> None:
    (tmp_path / "completion").write_text(cli("completion", "bash").stdout)
    words = " ".join(["greenroom", *typed])
    asks = f"COMP_WORDS=({words}); COMP_CWORD={len(typed)}; _greenroom; echo ${{COMPREPLY[@]}}"
    shown = subprocess.run(
        ["bash", "-c", f"source {tmp_path}/completion; {asks}"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == [completed]


@pytest.mark.parametrize("args", [["nonsense"], ["serve"], ["run"], ["serve", "agents", "--port", "many"]])
def test_wrong_usage_ends_with_2(cli: Cli, args: list[str]) -> None:
    done = cli.run_process(*args)
    assert done.returncode == 2
    assert "Error" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_is_one_line_and_ends_with_1(cli: Cli) -> None:
    done = cli("run", "nowhere", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "There is no folder 'nowhere' to find apps in\n"


def test_debug_shows_the_traceback(cli: Cli) -> None:
    by_flag = cli.run_process("run", "nowhere", "hello", "--debug")
    by_variable = cli.run_process("run", "nowhere", "hello", GREENROOM_DEBUG="1")
    for done in (by_flag, by_variable):
        assert done.returncode == 1
        assert "Traceback" in done.stderr
        assert done.stderr.endswith("There is no folder 'nowhere' to find apps in\n")


def boolean_flags(commands: App = app, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each command, with a word for each argument that it requires, and each of its boolean flags."""
    for name in commands:
        if name.startswith("-"):
            continue
        command = commands[name]
        yield from boolean_flags(command, (*path, name))
        if command.default_command is None:
            continue
        arguments = command.assemble_argument_collection()
        required = [argument for argument in arguments if argument.required]
        words = ["x" for argument in required if argument.index is not None]
        for argument in required:
            if argument.index is None:
                words += [argument.name, "2026-01-01" if argument.hint is datetime else "x"]
        for argument in arguments:
            if argument.hint is bool:
                yield (*path, name, *words), argument.name


def values_of(tokens: list[str]) -> dict[str, Any]:
    _, bound, unused = app.parse_known_args(join_boolean_values(tokens))[:3]
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        found.update(value if isinstance(value, dict) else {name: value})
    return {"unused": unused, **{name.replace(".", "_"): value for name, value in found.items()}}


def test_booleans_take_values_in_every_command() -> None:
    flags_of: dict[tuple[str, ...], list[str]] = {}
    for path, flag in boolean_flags():
        flags_of.setdefault(tuple(path), []).append(flag)
    assert {path[0] for path in flags_of} >= {"serve", "config", "record", "replay", "eval"}

    for path, flags in flags_of.items():
        for text, value in {"true": True, "false": False, "False": False}.items():
            for words in (
                [word for flag in flags for word in (flag, text)],
                [word for flag in flags for word in (flag.replace("-", "_").replace("__", "--", 1), text)],
                [f"{flag}={text}" for flag in flags],
            ):
                found = values_of([*path, *words])
                assert found["unused"] == [], (path, words)
                for flag in flags:
                    assert found[_key(flag)] is value, (path, flag, words)
        found = values_of([*path, *flags])
        for flag in flags:
            assert found[_key(flag)] is True, (path, flag)


def _key(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def test_other_words_are_left_as_they_are(cli: Cli) -> None:
    assert join_boolean_values(["run", "apps/x", "true"]) == ["run", "apps/x", "true"]
    assert join_boolean_values(["--debug", "false", "run", "x"]) == ["--debug=false", "run", "x"]
    assert join_boolean_values(["serve", "true", "--port", "1"]) == ["serve", "true", "--port", "1"]
    done = cli("config", "show", "--cors-allow-credentials", "false", "--auto-create-session", "true")
    assert (done.returncode, done.stderr) == (0, "")
    shown = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines() if line}
    assert (shown["cors.allow_credentials"], shown["auto_create_session"]) == ("false", "true")
