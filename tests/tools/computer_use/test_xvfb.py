"""A desktop with an editor; what the editor has saved shows what has reached it."""

from __future__ import annotations

import asyncio
import base64
import functools
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from greenroom.errors import NotOffered, ToolError
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.tools.computer_use.keyboard import SPARE_KEYS
from greenroom.tools.computer_use.xvfb import XvfbComputer
from tests.processes import END_WITH_PARENT, children_of, is_running
from tests.requirements import require_desktop
from tests.tools.computer_use.user import User, runner_with
from tests.tools.computer_use.user import virtual as scaled

pytestmark = pytest.mark.slow

EDITOR = ("mousepad", "--disable-server")
SIZE = (640, 480)
LINE = 61 if os.geteuid() == 0 else 36
"""Height of the first line of a text: below the menu, and below a warning to root."""

virtual = functools.partial(scaled, SIZE)
FIRST_LINE = virtual(12, LINE)


@pytest.fixture(autouse=True)
def temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the desktops' files, of which a computer that is closed leaves none."""
    require_desktop()
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


class File:
    """A file that the editor edits."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def opened_by(self, user: User) -> None:
        """Waits until the editor, which may still be starting, has saved a text."""
        before = self._changed_at()
        async with asyncio.timeout(20):
            while self._changed_at() == before:
                await user.does("type_text_at", **FIRST_LINE, text="opened", press_enter=False)
                await user.does("hotkey", keys=["Control", "s"])

    async def saved_by(self, user: User) -> str:
        """The editor's text, which was changed since it was saved last."""
        before = self._changed_at()
        await user.does("hotkey", keys=["Control", "s"])
        async with asyncio.timeout(10):
            while self._changed_at() == before or not self.path.stat().st_size:
                await asyncio.sleep(0.02)
        return self.path.read_text()

    def _changed_at(self) -> int:
        return self.path.stat().st_mtime_ns if self.path.exists() else 0


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "notes.txt")


def computer_with(*command: str, **options: Any) -> XvfbComputer:
    return XvfbComputer(command=command, screen_size=SIZE, settle_seconds=0.1, **options)


@pytest.fixture
def computer(file: File) -> XvfbComputer:
    return computer_with(*EDITOR, str(file.path))


@pytest.fixture
async def runner(computer: XvfbComputer) -> AsyncIterator[InMemoryRunner]:
    async with runner_with(computer) as runner:
        yield runner
        processes = processes_of(computer)
    assert not any(map(is_running, processes))


def screen(response: dict[str, Any]) -> bytes:
    return base64.b64decode(response["image"]["data"])


def processes_of(computer: XvfbComputer) -> list[int]:
    """The X servers and applications of all sessions."""
    found: list[int] = []
    for desktop in computer._desktops.values():
        assert desktop._server is not None
        assert desktop._application is not None
        found += [desktop._server.processes.pid, desktop._application.processes.pid]
    return found


async def until_ended(*pids: int) -> None:
    async with asyncio.timeout(10):
        while any(is_running(pid) for pid in pids):
            await asyncio.sleep(0.02)


async def test_mouse_and_keys_reach_the_application(runner: InMemoryRunner, file: File) -> None:
    user = User(runner, "s")
    png = screen(await user.does("take_screenshot"))
    assert (png[:8], struct.unpack(">II", png[16:24])) == (b"\x89PNG\r\n\x1a\n", SIZE)

    await file.opened_by(user)
    await user.does("type_text_at", **FIRST_LINE, text="alpha beta", press_enter=False)
    assert await file.saved_by(user) == "alpha beta"
    await user.does("double_click", **virtual(30, LINE))
    await user.does("type", text="gamma", press_enter=True)
    assert await file.saved_by(user) == "gamma\n beta"
    await user.does("triple_click", **FIRST_LINE)
    await user.does("press_key", key="Z")
    assert await file.saved_by(user) == "Z\n beta"
    await user.does("hotkey", keys=["Control", "A"])
    await user.does("press_key", key="z")
    assert await file.saved_by(user) == "z"
    await user.does("type_text_at", **FIRST_LINE, text="drag me", press_enter=False)

    end_of_line = virtual(400, LINE)
    await user.does("drag_and_drop", **virtual(4, LINE), destination_x=end_of_line["x"], destination_y=end_of_line["y"])
    await user.does("type", text="a")
    assert await file.saved_by(user) == "a"
    await user.does("mouse_down", **virtual(4, LINE))
    await user.does("mouse_up", **end_of_line)
    await user.does("type", text="b")
    assert await file.saved_by(user) == "b"
    await user.does("press_key", key="Home")
    await user.does("key_down", key="shift")
    await user.does("press_key", key="ArrowRight")
    await user.does("key_up", key="shift")
    await user.does("press_key", key="+")
    assert await file.saved_by(user) == "+"


async def test_menus_and_the_wheel(runner: InMemoryRunner, file: File) -> None:
    lines = [str(number) for number in range(1000)]
    file.path.write_text("\n".join(lines))
    user = User(runner, "s")
    await user.does("wait", seconds=1)  # until the text is shown
    await user.does("scroll_document", direction="down")
    await user.does("click", **FIRST_LINE)
    await user.does("type", text="x")
    await user.does("scroll_at", **FIRST_LINE, direction="up", magnitude=4000)
    await user.does("click", **virtual(300, LINE))
    await user.does("type", text="y")
    changed = {
        number: line for number, line in enumerate((await file.saved_by(user)).split("\n")) if line != lines[number]
    }
    assert changed.pop(0) == "0y"
    ((number, line),) = changed.items()
    assert number > 5
    assert "x" in line

    await user.does("hotkey", keys=["Control", "a"])
    await user.does("type", text="all")
    await user.does("right_click", **virtual(300, 200))
    for key in ("ArrowUp", "ArrowUp", "Enter"):  # in the menu, "Increase Indent"
        await user.does("press_key", key=key)
    indented = await file.saved_by(user)
    assert indented != "all" == indented.strip()


@contextmanager
def often_busy(pid: int) -> Generator[None]:
    """Stops a process for a tenth of a second again and again."""
    is_over = threading.Event()

    def stop_often() -> None:
        while not is_over.is_set():
            os.kill(pid, signal.SIGSTOP)
            is_over.wait(0.1)
            os.kill(pid, signal.SIGCONT)
            is_over.wait(0.05)

    thread = threading.Thread(target=stop_often)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


async def test_any_text_reaches_a_busy_application(runner: InMemoryRunner, computer: XvfbComputer, file: File) -> None:
    user = User(runner, "s")
    text = "Größe — naïve café, Łódź, Жизнь, 日本語, שלום, 😀\n\tcost: 5 € (~3 £) {\"a\": '<b>'} \\ $x `y` #1 @2 ^3 | 4;\n-- done"
    await file.opened_by(user)
    application = processes_of(computer)[1]
    with often_busy(application):
        await user.does("type_text_at", **FIRST_LINE, text=text, press_enter=False)
    assert await file.saved_by(user) == text


async def test_a_text_has_more_characters_than_the_keyboard_has_keys(runner: InMemoryRunner, file: File) -> None:
    user = User(runner, "s")
    text = "".join(chr(0x4E00 + number) for number in range(2 * len(SPARE_KEYS) + 10))
    await file.opened_by(user)
    await user.does("type_text_at", **FIRST_LINE, text=text, press_enter=False)
    await user.does("press_key", key="é")
    assert await file.saved_by(user) == text + "é"


async def test_what_cannot_be_done_is_a_result(runner: InMemoryRunner) -> None:
    user = User(runner, "s")
    for name, args, error in (
        ("press_key", {"key": "Bogus"}, "no key 'Bogus'"),
        ("hotkey", {"keys": []}, "no key is named"),
        ("type", {"text": "\x1b[A"}, "control characters"),
        ("type_text_at", {**FIRST_LINE, "text": "\x00"}, "control characters"),
        ("navigate", {"url": "http://localhost/"}, "no web browser"),
        ("open_web_browser", {}, "no web browser"),
        ("search", {}, "no web browser"),
        ("go_back", {}, "no web browser"),
        ("go_forward", {}, "no web browser"),
    ):
        assert error in (await user.does(name, **args))["error"]


async def test_sessions_have_desktops_of_their_own() -> None:
    computer = computer_with(*EDITOR, "notes.txt", max_sessions=2)
    async with runner_with(computer) as runner:
        first, second, third = (User(runner, name) for name in ("s-1", "s-2", "s-3"))
        await first.does("take_screenshot")
        await second.does("take_screenshot")
        homes = [desktop._home for desktop in computer._desktops.values()]
        await File(homes[0] / "notes.txt").opened_by(first)
        assert not (homes[1] / "notes.txt").exists()
        server_of_second = processes_of(computer)[0]  # which was used longest ago
        await third.does("take_screenshot")
        assert not is_running(server_of_second)
        assert len(processes_of(computer)) == 4
        processes = processes_of(computer)

    assert not any(map(is_running, processes))


async def test_a_crashed_desktop_and_a_closed_application_are_started_again(
    runner: InMemoryRunner, computer: XvfbComputer, file: File
) -> None:
    user = User(runner, "s")
    await user.does("take_screenshot")
    server, application = processes_of(computer)
    os.kill(server, signal.SIGKILL)
    await until_ended(server, application)
    await file.opened_by(user)
    server, application = processes_of(computer)
    await user.does("hotkey", keys=["Control", "q"])
    await until_ended(application)
    await file.opened_by(user)
    assert processes_of(computer)[0] == server


async def test_the_application_has_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "secret")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("XAUTHORITY", "/root/.Xauthority")
    listed = tmp_path / "env.txt"
    computer = computer_with("sh", "-c", f"env > {listed}; exec mousepad", env={"EDITOR": "mousepad"})
    async with runner_with(computer) as runner:
        await User(runner, "s").does("take_screenshot")
        (desktop,) = computer._desktops.values()
        env = dict(line.split("=", 1) for line in listed.read_text().splitlines())
        assert set(env) - {"PWD", "_", "SHLVL", "OLDPWD"} == {
            "PATH", "LANG", "HOME", "XDG_RUNTIME_DIR", "XAUTHORITY", "DISPLAY", "EDITOR",
        }  # fmt: skip
        assert env["HOME"] == env["PWD"] == str(desktop._home)
        assert os.stat(env["XAUTHORITY"]).st_mode & 0o777 == 0o600
        assert os.stat(desktop._folder).st_mode & 0o777 == 0o700

        known = {name: env[name] for name in ("DISPLAY", "XAUTHORITY", "PATH")}
        assert can_connect(known)
        assert not can_connect({**known, "XAUTHORITY": "/dev/null"})


def can_connect(env: dict[str, str]) -> bool:
    command = ["xdotool", "getmouselocation"]
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0


KILLED_SERVER = """
    import asyncio
    from types import SimpleNamespace
    from greenroom import XvfbComputer

    async def main():
        computer = XvfbComputer(command=["sh", "-c", "mousepad & sleep 1000"], screen_size=(200, 100))
        await computer.initialize()
        await computer.prepare(SimpleNamespace(session=SimpleNamespace(key="s")))
        print("ready", flush=True)
        await asyncio.sleep(1000)

    asyncio.run(main())
"""


async def test_a_desktop_ends_when_its_server_is_killed(temporary_files: Path) -> None:
    command = [*END_WITH_PARENT, sys.executable, "-c", textwrap.dedent(KILLED_SERVER)]
    server = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(temporary_files)}
    )
    assert server.stdout is not None
    assert await server.stdout.readline() == b"ready\n"
    children = children_of(server.pid)
    processes = [*children, *(process for child in children for process in children_of(child))]
    assert len(processes) >= 6  # the X server and the application with its two processes, and what stops them
    server.kill()
    await server.wait()
    await until_ended(*processes)
    async with asyncio.timeout(10):
        while os.listdir(temporary_files):
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (["/nowhere/editor"], "'/nowhere/editor' could not be started: No such file"),
        (["sh", "-c", "echo broken >&2; exit 3"], "exit code 3 before it showed a window: broken"),
    ],
)
async def test_an_application_that_does_not_start_leaves_nothing(command: list[str], error: str) -> None:
    computer = computer_with(*command)
    async with runner_with(computer) as runner:
        before = children_of(os.getpid())
        with pytest.raises(ToolError, match=error):
            await User(runner, "s").does("take_screenshot")
        assert children_of(os.getpid()) == before


async def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> str | None:
        return None if name == "xdotool" else f"/usr/bin/{name}"

    monkeypatch.setattr(shutil, "which", find)
    with pytest.raises(NotOffered, match="needs xdotool; on Debian: apt-get install"):
        await computer_with(*EDITOR).initialize()


@pytest.mark.parametrize(
    "options",
    [
        {"command": []},
        {"command": "xterm"},
        {"command": ["xterm"], "max_sessions": 0},
        {"command": ["xterm"], "screen_size": (0, 9)},
    ],
)
def test_wrong_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="XvfbComputer"):
        XvfbComputer(**options)
