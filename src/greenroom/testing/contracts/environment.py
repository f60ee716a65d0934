"""Contract of environments.

Star-import these tests into a test file that has a fixture `environment`: a new one for each test,
initialized, with a shell of POSIX. Needs pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from greenroom.environments.environment import BaseEnvironment
from greenroom.environments.process import MAX_OUTPUT_BYTES, ExecutionResult


async def test_a_command_runs_in_the_working_directory(environment: BaseEnvironment) -> None:
    assert await environment.execute("pwd") == ExecutionResult(stdout=f"{environment.working_dir}\n")


async def test_the_exit_code_and_both_streams_are_returned(environment: BaseEnvironment) -> None:
    assert await environment.execute("printf out; printf err >&2; exit 3") == ExecutionResult(3, "out", "err")


async def test_a_command_may_have_quotes_lines_and_any_characters(environment: BaseEnvironment) -> None:
    result = await environment.execute('a="it\'s"\nprintf \'%s|%s\\n\' "$a" \'"$x" `y` \\ 日本\'')
    assert result == ExecutionResult(stdout='it\'s|"$x" `y` \\ 日本\n')


async def test_a_command_reads_no_input(environment: BaseEnvironment) -> None:
    async with asyncio.timeout(10):
        assert await environment.execute("cat; echo end") == ExecutionResult(stdout="end\n")


async def test_output_that_is_no_text_is_returned(environment: BaseEnvironment) -> None:
    assert (await environment.execute("printf 'a\\377\\000b'")).stdout == "a\ufffd\0b"


async def test_the_beginning_of_long_output_is_returned(environment: BaseEnvironment) -> None:
    result = await environment.execute("yes | head -c 300000; echo short >&2")
    assert result.stdout.startswith("y\ny\n")
    assert result.stdout.endswith("… (300000 bytes in all)")
    assert len(result.stdout) < MAX_OUTPUT_BYTES + 100
    assert result.stderr == "short\n"


async def test_a_command_that_takes_too_long_is_stopped_with_all_it_started(environment: BaseEnvironment) -> None:
    result = await environment.execute("sleep 60 & echo $!; wait", timeout=0.3)
    assert result.timed_out
    assert result.exit_code != 0
    await _until_ended(environment, result.stdout.strip())


async def test_a_command_that_ends_in_time_is_not_late(environment: BaseEnvironment) -> None:
    result = await environment.execute("exit 124", timeout=30)
    assert (result.exit_code, result.timed_out) == (124, False)


async def test_a_cancelled_command_is_stopped_with_all_it_started(environment: BaseEnvironment) -> None:
    command = asyncio.create_task(environment.execute("sleep 60 & echo $! > pid.new; mv pid.new pid; wait"))
    pid = ""
    async with asyncio.timeout(10):
        while not pid:
            try:
                pid = (await environment.read_file("pid")).decode().strip()
            except FileNotFoundError:
                await asyncio.sleep(0.01)

    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command
    await _until_ended(environment, pid)


async def test_commands_run_side_by_side(environment: BaseEnvironment) -> None:
    async with asyncio.timeout(10):
        waiting = environment.execute("until [ -e go ]; do sleep 0.01; done; echo went")
        results = await asyncio.gather(waiting, environment.execute("touch go"))
    assert results == [ExecutionResult(stdout="went\n"), ExecutionResult()]


async def test_files_are_written_with_their_folders_and_read(environment: BaseEnvironment) -> None:
    content = bytes(range(256)) * 1000
    await environment.write_file("new/deep er/it's.bin", content)
    await environment.write_file(Path("text"), "größe\n")
    assert await environment.read_file(Path("new/deep er/it's.bin")) == content
    assert (await environment.execute("cat text; cat new/*/* | wc -c")).stdout == "größe\n256000\n"


async def test_a_written_file_replaces_the_one_before(environment: BaseEnvironment) -> None:
    await environment.write_file("f", "a long text")
    await environment.write_file(environment.working_dir / "f", "")
    assert await environment.read_file("f") == b""


async def test_what_commands_write_is_read(environment: BaseEnvironment) -> None:
    await environment.execute("printf 'by a command' > f")
    assert await environment.read_file("f") == b"by a command"


async def test_a_missing_file_is_file_not_found(environment: BaseEnvironment) -> None:
    with pytest.raises(FileNotFoundError):
        await environment.read_file("missing")


async def test_a_folder_is_no_file(environment: BaseEnvironment) -> None:
    await environment.execute("mkdir folder")
    with pytest.raises(Exception, match="directory"):
        await environment.read_file("folder")


async def test_it_can_be_closed_twice_and_used_again(environment: BaseEnvironment) -> None:
    await environment.close()
    await environment.close()
    await environment.initialize()
    assert (await environment.execute("echo again")).stdout == "again\n"


async def _until_ended(environment: BaseEnvironment, process_id: str) -> None:
    """A process that nobody has waited for counts as ended."""
    is_running = f"grep -q '^State:.[^Z]' /proc/{process_id}/status"
    async with asyncio.timeout(10):
        while (await environment.execute(is_running)).exit_code == 0:
            await asyncio.sleep(0.01)
