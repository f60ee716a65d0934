from __future__ import annotations

import pytest

from greenroom import __version__
from tests.cli.conftest import Cli

_REPORT = "; import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))"


def test_version(cli: Cli) -> None:
    done = cli("--version")
    assert (done.returncode, done.stdout.strip()) == (0, __version__)


@pytest.mark.parametrize(
    "command",
    ["", "serve", "run", "models", "models pull", "models list", "sessions", "sessions list", "sessions show"],
)
def test_every_command_explains_itself(cli: Cli, command: str) -> None:
    done = cli(*command.split(), "--help")
    assert done.returncode == 0
    assert f"Usage: greenroom {command}".strip() in done.stdout
    assert done.stderr == ""


def test_help_waits_for_nothing_heavy(cli: Cli) -> None:
    cli.write("sitecustomize.py", "pass" + _REPORT)
    cli.environment["PYTHONPATH"] += f":{cli.folder}"
    for args in (["--help"], ["serve", "--help"], ["run", "--help"]):
        loaded = set(cli(*args).stderr.split())
        assert "cyclopts" in loaded
        assert not loaded & {"starlette", "uvicorn", "xllamacpp", "obstore", "openai", "pydantic", "sqlite3"}


@pytest.mark.parametrize("args", [["nonsense"], ["serve"], ["run"], ["serve", "agents", "--port", "many"]])
def test_wrong_usage_ends_with_2(cli: Cli, args: list[str]) -> None:
    done = cli(*args)
    assert done.returncode == 2
    assert "Error" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_is_one_line_and_ends_with_1(cli: Cli) -> None:
    done = cli("run", "nowhere", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "There is no folder 'nowhere' to find apps in\n"


def test_debug_shows_the_traceback(cli: Cli) -> None:
    for done in (cli("run", "nowhere", "hello", "--debug"), cli("run", "nowhere", "hello", GREENROOM_DEBUG="1")):
        assert done.returncode == 1
        assert "Traceback" in done.stderr
        assert done.stderr.endswith("There is no folder 'nowhere' to find apps in\n")
