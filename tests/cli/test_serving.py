"""Command lines of `serve` that are read without the library for command lines."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from greenroom.cli.commands import app, join_boolean_values
from greenroom.cli.serving import plain_command_line
from greenroom.server.configuration import all_settings


def read_by_library(line: str) -> tuple[Path, dict[str, Any]]:
    tokens = join_boolean_values(["serve", *shlex.split(line)])
    _, bound, _ = app.parse_args(tokens, print_error=False, exit_on_error=False)
    return bound.arguments["agents_dir"], dict(bound.arguments.get("flags") or {})


def every_flag() -> list[str]:
    samples = {bool: "", int: " 7", float: " 1.5", str: " x"}
    return [one.flag + samples[one.plain_type] for one in all_settings() if one.plain_type in samples]


@pytest.mark.parametrize(
    "line",
    [
        "apps",
        "apps --port 9000 --session-service sqlite:///chats.db",
        "--host ::1 apps --reload --log-format json",
        "apps --workers 2 --port 9000",
        "apps --workers auto",
        "--edit apps --reload false --port 9000 --auto-create-session TRUE",
        "--edit true apps --cors-allow-credentials false",
        *(f"apps {flag}" for flag in every_flag()),
    ],
)
def test_a_plain_command_line_is_read_as_by_cyclopts(line: str) -> None:
    assert plain_command_line(shlex.split(line)) == read_by_library(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "apps more",
        "apps --no-reload",
        "apps --port",
        "apps --port nine",
        "apps --port 1 --port 2",
        "apps --port=9000",
        "apps --config greenroom.toml",
        "apps --allow-origins a b",
        "apps --no-such-flag x",
        "apps --session-service none",
    ],
)
def test_other_command_lines_are_left_to_cyclopts(line: str) -> None:
    assert plain_command_line(shlex.split(line)) is None
