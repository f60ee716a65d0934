"""Every block of code of the pages is run or read by a test: what is not followed literally is at least valid.

A block that is neither has a comment before it, `<!-- not tested: why -->`. One that another test runs may say which:
`<!-- tested: tests/cli/test_deploy.py -->`.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from greenroom.cli.commands import app
from greenroom.server.endpoints import ENDPOINTS
from tests.documentation.pages import ROOT, Block, Command, blocks_of, steps_in

PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FOLLOWED = {
    "docs/approvals.md",
    "docs/gallery.md",
    "docs/logins.md",
    "docs/migration.md",
    "docs/improving.md",
    "docs/reminders.md",
    "docs/waiting-runs.md",
}
"""Pages whose transcripts are compared in other tests, beside those in docs/tutorial/."""

_SHELLS = ("bash", "sh", "console")
_READ: dict[str, Callable[[str], Any]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
    "mermaid": lambda text: text,  # drawn from the page by the site
    "python": lambda text: compile(text, "page", "exec"),  # and a snippet, see `test_snippets.py`
}
_GATES = ("/api/reasoning_engine", "/api/stream_reasoning_engine")


def _blocks() -> Iterator[Block]:
    for page in PAGES:
        yield from blocks_of(page)


def _is_followed(block: Block) -> bool:
    return block.page.startswith("docs/tutorial/") or block.page in FOLLOWED


def _commands() -> list[Command]:
    return [command for block in _blocks() if block.language in _SHELLS for command in _commands_of(block)]


def _commands_of(block: Block) -> Iterator[Command]:
    """The commands of a block, without output. Several lines of an `sh` block are several commands."""
    if block.language == "console":
        yield from (step for step in steps_in([block._replace(comment=None)]) if isinstance(step, Command))
        return
    waiting = ""
    for line in block.text.splitlines():
        waiting = f"{waiting}\n{line}" if waiting else line
        if waiting.strip() and not waiting.endswith("\\") and _is_whole(waiting):
            yield Command(waiting.strip(), None, block.place)
            waiting = ""
    assert not waiting.strip(), f"{block.place} ends within a command: {waiting}"


def _is_whole(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return False
    return True


def _simple_commands(command: Command, program: str) -> Iterator[list[str]]:
    """The words of each call of a program in a line, without variables before it and redirections after it."""
    words = shlex.split(command.line.replace("\\\n", " "), comments=True)
    part: list[str] = []
    for word in [*words, ";"]:
        if word in (";", "&&", "||", "|", "&", ">", ">>", "2>&1"):
            while part and re.match(r"\w+=", part[0]):
                part.pop(0)
            if part and part[0] == program:
                yield part[1:]
            part = []
        else:
            part.append(word)


def test_blocks_are_run_or_read() -> None:
    """A block of another language says which test runs it, or why none does."""
    known = {*_READ, *_SHELLS}
    assert [
        f"{block.place}: {block.language or 'no language'}"
        for block in _blocks()
        if block.language not in known and block.comment is None and block.title is None and not _is_followed(block)
    ] == []


def test_shown_output_is_compared() -> None:
    shown = [
        command.place
        for block in _blocks()
        if block.language == "console" and block.comment is None and not _is_followed(block)
        for command in _commands_of(block)
        if command.output
    ]
    assert sorted(set(shown)) == []


def test_files_of_tests_that_pages_name_exist() -> None:
    named = [block.comment[1] for block in _blocks() if block.comment is not None and block.comment[0] == "tested"]
    paths = [name for name in named if name.startswith("tests/")]
    assert len(paths) > 3
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("language", _READ)
def test_blocks_can_be_read(language: str) -> None:
    found = [block for block in _blocks() if block.language == language]
    assert found
    for block in found:
        if block.comment is not None and block.comment[0] == "not tested":
            continue
        try:
            _READ[language](block.text)
        except Exception as error:
            raise AssertionError(f"{block.place} is not valid {language}: {error}") from error


def test_shell_commands_are_valid() -> None:
    script = "\n".join(f"{{ {command.line}\n}}" for command in _commands() if command.line != "^C")
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_commands_of_greenroom_have_these_options() -> None:
    calls = [(command.place, words) for command in _commands() for words in _simple_commands(command, "greenroom")]
    assert len(calls) > 50
    for place, words in calls:
        if words[:1] == ["--version"]:
            continue
        try:
            app.parse_args(words, exit_on_error=False, print_error=False)
        except Exception as error:
            raise AssertionError(f"{place}: greenroom {shlex.join(words)}\n{error}") from error


def test_requests_have_a_path_and_a_body_of_the_server() -> None:
    paths = [_path_pattern(endpoint.path) for endpoint in ENDPOINTS]
    calls = [(command.place, words) for command in _commands() for words in _simple_commands(command, "curl")]
    assert len(calls) > 40
    for place, words in calls:
        for word in words:
            address = re.match(r"(?:http://)?(?:localhost|127\.0\.0\.1):8000(/[^?]*)", word)
            if address and address[1] not in _GATES:
                assert any(path.fullmatch(address[1]) for path in paths), f"{place}: no endpoint has {address[1]}"
            if word.startswith("{") and "$(" not in word:
                json.loads(word)


def _path_pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{[^}]*\\\}", "[^/]+", re.escape(path)))


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = [words[0] for command in _commands() for words in _simple_commands(command, "make")]
    assert [name for name in named if name not in targets] == []


def test_addresses_on_the_web_are_written_correctly() -> None:
    """No network: only their form."""
    for page in PAGES:
        for address in re.findall(r"\]\((https?:[^)\s]*)\)|<(https?:[^>\s]*)>", page.read_text()):
            url = next(one for one in address if one)
            assert re.fullmatch(r"https?://[\w.-]+(:\d+)?(/[^\s<>\"]*)?(#\S+)?", url), f"{page.name}: {url}"
