"""Code of agents in sandboxes: one for each piece of code, or one that a session keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.code_executors.executor import TIMED_OUT, CodeExecutionInput, CodeExecutionResult
from greenroom.code_executors.sandboxed import SandboxCodeExecutor
from greenroom.environments.bubblewrap import BubblewrapSandbox
from greenroom.environments.files import MAX_FILE_BYTES, File
from greenroom.errors import ToolError
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content, Part
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.testing.scripted_model import ScriptedModel
from tests.requirements import require_bubblewrap
from tests.server.serving import until


class Watched(SandboxCodeExecutor):
    """Notes the results of code."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.results: list[CodeExecutionResult] = []

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        result = await super().execute_code(invocation_context, code_execution_input)
        self.results.append(result)
        return result


class Conversation:
    """Sessions of an agent whose model writes the given code."""

    def __init__(self, executor: Watched) -> None:
        self.executor = executor
        self._replies: list[str | Part] = []
        model = ScriptedModel(lambda _: self._replies.pop(0))
        agent = LlmAgent(name="coder", model=model, code_executor=executor)
        self.runner = InMemoryRunner(agent, app_name="app")

    async def run(
        self, code: str, *, user: str = "ada", session: str = "s-1", files: Sequence[File] = ()
    ) -> CodeExecutionResult:
        sessions = self.runner.session_service
        if await sessions.get_session(app_name="app", user_id=user, session_id=session) is None:
            state = {"_code_executor_input_files": [msgspec.to_builtins(file) for file in files]}
            await sessions.create_session(app_name="app", user_id=user, session_id=session, state=state)

        self._replies += [Part.from_executable_code(code=code), "Done."]
        message = Content(role="user", parts=[Part(text="go")])
        async with asyncio.timeout(30):
            run = self.runner.run_async(user_id=user, session_id=session, new_message=message)
            async with aclosing(run) as events:
                shown = [event async for event in events]
        assert [event.author for event in shown] == ["coder"] * 3
        return self.executor.results[-1]


@pytest.fixture
async def executors() -> AsyncIterator[list[Watched]]:
    """Executors that a test has made, to close after it."""
    require_bubblewrap()
    made: list[Watched] = []
    yield made
    for executor in made:
        await executor.close()


@pytest.fixture
def conversation(executors: list[Watched]) -> Conversation:
    executors.append(Watched(BubblewrapSandbox()))
    return Conversation(executors[0])


@pytest.fixture
def stateful(executors: list[Watched]) -> Conversation:
    executors.append(Watched(BubblewrapSandbox(), stateful=True))
    return Conversation(executors[0])


async def test_each_piece_of_code_has_a_sandbox_of_its_own(conversation: Conversation) -> None:
    first = await conversation.run("x = 1\nopen('a.txt', 'w').write('one')\nprint(__name__)")
    written = File(name="a.txt", content=b"one")
    assert first == CodeExecutionResult(stdout="__main__\n", exit_code=0, output_files=[written])
    second = await conversation.run("import os\nprint('x' in globals(), os.listdir())")
    assert second.stdout == "False []\n"


async def test_input_files_are_there_and_only_new_and_changed_ones_come_back(conversation: Conversation) -> None:
    given = [File(name="a.txt", content=b"one"), File(name="data/b.csv", content=b"1")]
    result = await conversation.run(
        "open('data/b.csv', 'a').write('2')\nopen('c.json', 'w').write(open('a.txt').read())", files=given
    )
    assert list(result.output_files) == [
        File(name="c.json", content=b"one", mime_type="application/json"),
        File(name="data/b.csv", content=b"12", mime_type="text/csv"),
    ]


async def test_an_input_file_stays_in_the_folder(conversation: Conversation) -> None:
    with pytest.raises(ToolError, match="leads out of its folder"):
        await conversation.run("", files=[File(name="../code.py", content=b"")])


async def test_failures_and_warnings_are_told_apart(conversation: Conversation) -> None:
    failed = await conversation.run("print('half')\nraise KeyError('city')")
    warned = await conversation.run("import sys\nprint('careful', file=sys.stderr)")
    silent = await conversation.run("import os\nos._exit(3)")
    assert (failed.stdout, failed.exit_code) == ("half\n", 1)
    assert failed.stderr.endswith("KeyError: 'city'\n")
    assert (warned.stderr, warned.has_failed) == ("", False)
    assert (silent.stderr, silent.exit_code) == ("The code ended with exit code 3.", 3)


async def test_code_that_takes_too_long_is_stopped(executors: list[Watched]) -> None:
    executors.append(Watched(BubblewrapSandbox(), timeout_seconds=0.3))
    result = await Conversation(executors[0]).run("while True: pass")
    assert result.exit_code == TIMED_OUT
    assert "stopped after 0.3 s" in result.stderr


async def test_files_that_are_too_large_are_only_named(conversation: Conversation) -> None:
    result = await conversation.run(f"open('a.bin', 'wb').write(bytes({MAX_FILE_BYTES} + 1))")
    assert result.stdout == "\nNot kept, because of their number, size or name: a.bin\n"


async def test_code_of_one_session_shares_variables_and_files(stateful: Conversation) -> None:
    await stateful.run("x = 41\nopen('a.txt', 'w').write('kept')")
    again = await stateful.run("x += 1\nprint(x, open('a.txt').read())")
    assert again == CodeExecutionResult(stdout="42 kept\n", exit_code=0, output_files=[])


async def test_an_input_file_that_code_has_changed_is_not_written_again(stateful: Conversation) -> None:
    await stateful.run("open('a.txt', 'w').write('changed')", files=[File(name="a.txt", content=b"given")])
    assert (await stateful.run("print(open('a.txt').read())")).stdout == "changed\n"


async def test_sessions_of_users_share_nothing_even_with_equal_ids(stateful: Conversation) -> None:
    await stateful.run("secret = 1\nopen('a.txt', 'w').close()", user="ada", session="s-1")
    other = await stateful.run("import os\nprint('secret' in globals(), os.listdir())", user="bob", session="s-1")
    assert other.stdout == "False []\n"


async def test_a_sandbox_that_has_ended_is_replaced_with_its_files(stateful: Conversation) -> None:
    given = [File(name="in.txt", content=b"given"), File(name="both.txt", content=b"given")]
    await stateful.run("x = 1\nopen('out.txt', 'w').write('o')\nopen('both.txt', 'w').write('newer')", files=given)
    (kept,) = stateful.executor._pool._kept.values()
    await kept.sandbox.close()
    after = await stateful.run(
        "print('x' in globals(), open('in.txt').read(), open('out.txt').read(), open('both.txt').read())"
    )
    assert after.stdout.startswith("(This is a new sandbox. Variables")
    assert after.stdout.endswith("False given o newer\n")
    assert "new sandbox" not in (await stateful.run("print('x' in globals())")).stdout


async def test_another_server_says_that_variables_are_gone(stateful: Conversation, executors: list[Watched]) -> None:
    await stateful.run("x = 1")
    executors.append(Watched(BubblewrapSandbox(), stateful=True))
    elsewhere = Conversation(executors[1])
    elsewhere.runner.session_service = stateful.runner.session_service
    assert (await elsewhere.run("print('x' in globals())")).stdout.startswith("(This is a new sandbox.")


async def test_a_sandbox_that_is_idle_is_closed(executors: list[Watched]) -> None:
    executors.append(Watched(BubblewrapSandbox(), stateful=True, idle_seconds=0.1))
    conversation = Conversation(executors[0])
    await conversation.run("x = 1")
    (kept,) = executors[0]._pool._kept.values()
    await until(lambda: not executors[0]._pool._kept and not kept.sandbox.is_running)
    assert (await conversation.run("print(1)")).stdout.endswith(")\n1\n")


async def test_the_longest_unused_sandbox_makes_room(executors: list[Watched]) -> None:
    executors.append(Watched(BubblewrapSandbox(), stateful=True, max_kept=2))
    conversation = Conversation(executors[0])
    for session in ("s-1", "s-2", "s-1", "s-3"):
        await conversation.run("x = 1", session=session)
    kept = await conversation.run("print(x)", session="s-1")
    closed = await conversation.run("print('x' in globals())", session="s-2")
    assert kept.stdout == "1\n"
    assert closed.stdout.endswith("gone; saved files are there.)\nFalse\n")


async def test_close_ends_all_sandboxes(stateful: Conversation) -> None:
    for session in ("s-1", "s-2"):
        await stateful.run("x = 1", session=session)
    sandboxes = [kept.sandbox for kept in stateful.executor._pool._kept.values()]
    await stateful.runner.close()
    assert [sandbox.is_running for sandbox in sandboxes] == [False, False]


async def test_a_machine_without_bubblewrap_says_what_to_install(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolError, match="apt-get install"):
        await conversation.run("print(1)")


async def test_the_default_is_a_sandbox_of_this_machine(executors: list[Watched]) -> None:
    executors.append(Watched())
    result = await Conversation(executors[0]).run("import os\nprint(os.getuid())")
    assert result.stdout == "65534\n"
