"""Contract of sandboxes.

Star-import these tests into a test file that has a fixture `sandbox`: a new sandbox with the default limits, not
started, that is closed after the test. What a sandbox declares that it lacks (`has_shell`,
`ends_background_processes`) is expected to be missing. Needs pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from greenroom.environments.files import MAX_FILE_BYTES, MAX_FILES, File
from greenroom.environments.sandbox import Sandbox
from greenroom.errors import ToolError


def _needs_shell(sandbox: Sandbox) -> None:
    if not sandbox.has_shell:
        pytest.skip("it has no shell")


async def test_code_runs_as_the_main_module_in_the_working_directory(sandbox: Sandbox) -> None:
    ran = await sandbox.run_python("import os, sys\nprint(__name__, os.listdir(), os.getcwd(), sys.argv)")
    assert (ran.exit_code, ran.stderr, ran.timed_out) == (0, "", False)
    assert ran.stdout == f"__main__ [] {sandbox.working_dir} ['code.py']\n"


async def test_an_error_has_a_traceback_that_begins_in_the_code(sandbox: Sandbox) -> None:
    ran = await sandbox.run_python("print('half')\n\ndef find():\n    return {}['city']\n\nfind()")
    assert (ran.exit_code, ran.stdout) == (1, "half\n")
    first, second, *_ = ran.stderr.splitlines()
    assert (first, second) == ("Traceback (most recent call last):", '  File "code.py", line 6, in <module>')
    assert "return {}['city']" in ran.stderr
    assert ran.stderr.endswith("KeyError: 'city'\n")


async def test_code_that_is_no_python_is_an_error_of_the_code(sandbox: Sandbox) -> None:
    ran = await sandbox.run_python("if True print(1)")
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "SyntaxError" in ran.stderr


@pytest.mark.parametrize(("code", "exit_code", "stderr"), [("3", 3, ""), ("", 0, ""), ("'no data'", 1, "no data\n")])
async def test_exit_codes_are_those_of_a_process(sandbox: Sandbox, code: str, exit_code: int, stderr: str) -> None:
    ran = await sandbox.run_python(f"import sys\nsys.exit({code})")
    assert (ran.exit_code, ran.stderr) == (exit_code, stderr)


async def test_variables_are_kept_only_where_this_is_asked_for(sandbox: Sandbox) -> None:
    await sandbox.run_python("import math\nx = 41\ndef next_number():\n    return x + 1", keeps_variables=True)
    kept = await sandbox.run_python("print(next_number(), math.pi > 3)", keeps_variables=True)
    fresh = await sandbox.run_python("print('x' in globals())")
    again = await sandbox.run_python("print(x)", keeps_variables=True)
    assert (kept.stdout, fresh.stdout, again.stdout) == ("42 True\n", "False\n", "41\n")


async def test_variables_survive_errors_and_exits_of_code(sandbox: Sandbox) -> None:
    await sandbox.run_python("x = 1", keeps_variables=True)
    failed = await sandbox.run_python("x = 2\n1 / 0", keeps_variables=True)
    ended = await sandbox.run_python("import sys\nx += 1\nsys.exit(4)", keeps_variables=True)
    kept = await sandbox.run_python("print(x)", keeps_variables=True)
    assert (failed.exit_code, ended.exit_code, kept.stdout) == (1, 4, "3\n")


async def test_the_result_says_that_variables_are_gone(sandbox: Sandbox) -> None:
    await sandbox.run_python("x = 1", keeps_variables=True)
    late = await sandbox.run_python("while True: pass", keeps_variables=True, timeout=0.3)
    assert late.timed_out
    assert "variables" in late.stderr
    after = await sandbox.run_python("print('x' in globals())", keeps_variables=True)
    assert (after.stdout, after.stderr) == ("False\n", "")


async def test_a_timeout_stops_code_and_leaves_files(sandbox: Sandbox) -> None:
    started_at = time.monotonic()
    late = await sandbox.run_python(
        "open('a.txt', 'w').write('kept')\nprint('begun')\nimport time\ntime.sleep(60)", timeout=0.5
    )
    assert time.monotonic() - started_at < 10
    assert (late.timed_out, late.stdout) == (True, "begun\n")
    assert late.exit_code != 0
    assert await sandbox.read_file("a.txt") == b"kept"


async def test_output_comes_in_pieces_while_code_runs(sandbox: Sandbox) -> None:
    pieces: list[tuple[str, str]] = []
    came = asyncio.Event()

    def listen(stream: str, text: str) -> None:
        pieces.append((stream, text))
        came.set()

    code = "import sys, time\nprint('one')\nprint('two', file=sys.stderr)\ntime.sleep(60)"
    running = asyncio.create_task(sandbox.run_python(code, timeout=2, on_output=listen))
    async with asyncio.timeout(30):
        await came.wait()
    assert not running.done()
    ran = await running
    assert (ran.stdout, ran.stderr) == ("one\n", "two\n")
    assert sorted(pieces) == [("stderr", "two\n"), ("stdout", "one\n")]


async def test_the_beginning_of_long_output_is_kept(sandbox: Sandbox) -> None:
    kept = sandbox.limits.output_bytes
    ran = await sandbox.run_python("print('x' * 3_000_000)")
    assert ran.exit_code == 0
    assert ran.stdout == "x" * kept + "… (3000001 bytes in all)"


async def test_output_need_not_be_text(sandbox: Sandbox) -> None:
    ran = await sandbox.run_python("import sys\nsys.stdout.buffer.write(b'\\xff\\xc3\\xa9\\x00')")
    assert ran.stdout == "\ufffdé\x00"


async def test_code_may_contain_and_print_any_text(sandbox: Sandbox) -> None:
    ran = await sandbox.run_python("print('größe 日本語 🎭')")
    assert ran.stdout == "größe 日本語 🎭\n"


async def test_standard_input_is_empty(sandbox: Sandbox) -> None:
    ran = await sandbox.run_python("import sys\nprint(repr(sys.stdin.read()))", timeout=5)
    assert ran.stdout == "''\n"


async def test_files_go_in_and_out(sandbox: Sandbox) -> None:
    await sandbox.write_files(
        [
            File(name="data/in.csv", content=b"a,b\n1,2\n"),
            File(name="größe.txt", content=b""),
            File(name="b", content=b""),
        ]
    )
    await sandbox.write_file("b", "text")
    assert await sandbox.read_file("b") == b"text"
    ran = await sandbox.run_python("text = open('data/in.csv').read()\nopen('out.csv', 'w').write(text * 2)")
    assert ran.exit_code == 0, ran.stderr
    assert await sandbox.read_file("out.csv") == b"a,b\n1,2\n" * 2
    listed = await sandbox.list_files()
    assert [(file.name, file.size) for file in listed] == [
        ("b", 4),
        ("data/in.csv", 8),
        ("größe.txt", 0),
        ("out.csv", 16),
    ]


async def test_code_can_import_a_file_that_was_written(sandbox: Sandbox) -> None:
    await sandbox.write_file("tables.py", "ROWS = 3")
    assert (await sandbox.run_python("import tables\nprint(tables.ROWS)")).stdout == "3\n"


async def test_an_absolute_path_is_one_inside_the_sandbox(sandbox: Sandbox) -> None:
    path = sandbox.working_dir / "a.txt"
    await sandbox.write_file(path, b"here")
    assert await sandbox.read_file("a.txt") == b"here"
    assert await sandbox.read_file(path) == b"here"


async def test_a_file_that_is_missing_is_not_found(sandbox: Sandbox) -> None:
    with pytest.raises(FileNotFoundError):
        await sandbox.read_file("missing.txt")
    with pytest.raises(ToolError):
        await sandbox.read_file(".")


@pytest.mark.parametrize("name", ["", "../a", "/etc/a", "a/../../b", "nul\0", "a\nb", "x" * 300, "\udc80"])
async def test_unsafe_names_are_refused(sandbox: Sandbox, name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        await sandbox.write_files([File(name=name, content=b"")])


async def test_changed_files_are_those_of_code_since_the_last_call(sandbox: Sandbox) -> None:
    await sandbox.write_files([File(name="given.txt", content=b"1"), File(name="same.txt", content=b"1")])
    await sandbox.run_python(
        "open('given.txt', 'w').write('2')\nopen('new.csv', 'w').write('a')\nimport os\nos.symlink('same.txt', 'link')"
    )
    files, left_out = await sandbox.changed_files()
    assert files == [File(name="given.txt", content=b"2"), File(name="new.csv", content=b"a", mime_type="text/csv")]
    assert left_out == []
    assert await sandbox.changed_files() == ([], [])


async def test_files_that_are_written_after_code_has_run_are_not_changed(sandbox: Sandbox) -> None:
    await sandbox.run_python("open('a.txt', 'w').close()")
    await sandbox.write_files([File(name="a.txt", content=b"given"), File(name="b/größe.txt", content=b"given")])
    await sandbox.write_file("d.txt", b"given")
    await sandbox.run_python("open('c.txt', 'w').close()")
    files, _ = await sandbox.changed_files()
    assert [file.name for file in files] == ["c.txt"]


async def test_files_that_are_too_large_or_too_many_are_only_named(sandbox: Sandbox) -> None:
    await sandbox.run_python(
        f"open('a.bin', 'wb').write(bytes({MAX_FILE_BYTES} + 1))\n"
        f"for n in range({MAX_FILES} + 1):\n    open(f'f{{n:03}}', 'w').close()"
    )
    files, left_out = await sandbox.changed_files()
    assert [file.name for file in files] == [f"f{n:03}" for n in range(MAX_FILES)]
    assert left_out == ["a.bin", f"f{MAX_FILES:03}"]


async def test_the_environment_has_nothing_of_the_host(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_TEST_KEY", "secret")
    ran = await sandbox.run_python("import os\nprint(sorted(os.environ.items()))")
    assert "GREENROOM" not in ran.stdout


async def test_a_cancelled_execution_stops_and_leaves_files(sandbox: Sandbox) -> None:
    started = asyncio.Event()
    code = "open('a.txt', 'w').write('kept')\nprint('begun')\nwhile True: pass"
    running = asyncio.create_task(sandbox.run_python(code, on_output=lambda _stream, _text: started.set()))
    async with asyncio.timeout(30):
        await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(10):
        assert await sandbox.read_file("a.txt") == b"kept"


async def test_the_next_result_says_that_a_cancelled_execution_ended_the_variables(sandbox: Sandbox) -> None:
    started = asyncio.Event()
    await sandbox.run_python("x = 1", keeps_variables=True)
    endless = sandbox.run_python(
        "print('begun')\nwhile True: pass", keeps_variables=True, on_output=lambda _stream, _text: started.set()
    )
    running = asyncio.create_task(endless)
    async with asyncio.timeout(30):
        await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    after = await sandbox.run_python("print('x' in globals())", keeps_variables=True)
    assert after.stdout == "False\n"
    assert "variables" in after.stderr
    assert (await sandbox.run_python("print(1)", keeps_variables=True)).stderr == ""


async def test_executions_of_one_sandbox_wait_for_each_other(sandbox: Sandbox) -> None:
    code = (
        "import os, time\nassert not os.path.exists('busy')\nopen('busy', 'w').close()\ntime.sleep(0.05)\n"
        "os.remove('busy')"
    )
    ran = await asyncio.gather(*(sandbox.run_python(code) for _ in range(4)))
    assert [one.stderr for one in ran] == [""] * 4


async def test_sandboxes_are_separate(sandbox: Sandbox) -> None:
    other = sandbox.new()
    try:
        await sandbox.write_file("mine.txt", "1")
        assert await other.list_files() == []
        assert other.limits == sandbox.limits
    finally:
        await other.close()


async def test_a_closed_sandbox_starts_again_empty(sandbox: Sandbox) -> None:
    await sandbox.initialize()
    await sandbox.write_file("a.txt", "1")
    await sandbox.close()
    await sandbox.close()
    await sandbox.initialize()
    assert await sandbox.list_files() == []


async def test_a_command_runs_in_a_shell_in_the_working_directory(sandbox: Sandbox) -> None:
    _needs_shell(sandbox)
    ran = await sandbox.execute("pwd; echo no >&2; exit 3")
    assert (ran.stdout, ran.stderr, ran.exit_code) == (f"{sandbox.working_dir}\n", "no\n", 3)


async def test_commands_and_code_share_files(sandbox: Sandbox) -> None:
    _needs_shell(sandbox)
    await sandbox.run_python("open('a.txt', 'w').write('from Python\\n')")
    assert (await sandbox.execute("cat a.txt && echo x > b.txt")).stdout == "from Python\n"
    files, _ = await sandbox.changed_files()
    assert [file.name for file in files] == ["a.txt", "b.txt"]


async def test_processes_that_a_command_leaves_are_killed(sandbox: Sandbox) -> None:
    _needs_shell(sandbox)
    if not sandbox.ends_background_processes:
        pytest.skip("it leaves them running")
    await sandbox.run_python("x = 1", keeps_variables=True)
    started_at = time.monotonic()
    ran = await sandbox.execute("(sleep 1; touch late) & (setsid nohup sh -c 'sleep 1; touch later' &) ; echo done")
    assert ran.stdout == "done\n"
    assert time.monotonic() - started_at < 0.9
    await sandbox.run_python("import time\ntime.sleep(1.2)")
    assert await sandbox.list_files() == []
    assert (await sandbox.run_python("print(x)", keeps_variables=True)).stdout == "1\n"


async def test_processes_that_a_command_leaves_go_on(sandbox: Sandbox) -> None:
    _needs_shell(sandbox)
    if sandbox.ends_background_processes:
        pytest.skip("it kills them")
    await sandbox.execute("until [ -e go ]; do sleep 0.05; done >/dev/null && touch went & echo done")
    await sandbox.write_file("go", "")
    assert (await sandbox.execute("until [ -e went ]; do sleep 0.05; done", timeout=20)).exit_code == 0


async def test_a_signal_that_ends_a_command_is_its_exit_code(sandbox: Sandbox) -> None:
    _needs_shell(sandbox)
    assert (await sandbox.execute("kill -TERM $$")).exit_code == 143
    assert (await sandbox.execute("no-such-program")).exit_code == 127


async def test_a_sandbox_without_a_shell_says_so(sandbox: Sandbox) -> None:
    if sandbox.has_shell:
        pytest.skip("it has a shell")
    with pytest.raises(ToolError, match="shell"):
        await sandbox.execute("ls")
