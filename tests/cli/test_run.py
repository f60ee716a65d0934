from __future__ import annotations

import pytest

from tests.cli.conftest import CTRL_C, CTRL_D, Cli, Terminal

# one message


@pytest.mark.parametrize("target", ["agents/parrot", "agents", "agents:parrot"])
def test_answers_go_to_standard_output(cli: Cli, target: str) -> None:
    done = cli("run", target, "hello  [bold]there[/bold]")
    assert (done.returncode, done.stdout) == (0, "hello [bold]there[/bold] \n")
    assert done.stderr == "parrot:\n"


def test_tool_calls_go_to_standard_error(cli: Cli) -> None:
    done = cli.run_process("run", "agents", "shout")
    assert done.stdout == "The tool said HEY \n"
    assert done.stderr == 'parrot:\n→ shout(text="hey")\n← shout: {"shouted":"HEY"}\n'


def test_answers_of_parallel_agents_are_printed_once(cli: Cli) -> None:
    cli.write("agents/team/agent.py", """
        import asyncio
        from greenroom import BaseLlm, LlmAgent, LlmResponse, ParallelAgent, types

        both = asyncio.Barrier(2)

        class Slow(BaseLlm):
            async def generate_content_async(self, llm_request, stream=False):
                words = [f"{self.model}-{number} " for number in range(4)]
                for word in words:
                    await both.wait()
                    yield LlmResponse(content=types.ModelContent(word), partial=True)
                yield LlmResponse(content=types.ModelContent("".join(words)))

        agents = [LlmAgent(name=name, model=Slow(model=name)) for name in ("left", "right")]
        root_agent = ParallelAgent(name="team", sub_agents=agents)
    """)  # fmt: skip
    done = cli("run", "agents:team", "go")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["left-0 left-1 left-2 left-3 ", "right-0 right-1 right-2 right-3 "]
    assert sorted(done.stderr.splitlines()) == ["left:", "right:"]


def test_a_message_may_begin_with_a_dash(cli: Cli) -> None:
    assert cli("run", "agents", "--", "-5 degrees").stdout == "-5 degrees \n"


def test_control_characters_of_a_model_do_not_reach_the_terminal(cli: Cli) -> None:
    assert cli("run", "agents", "a\x1b[2Jb\x07c").stdout == "a[2Jbc \n"


def test_a_failed_run_says_why_once_and_ends_with_1(cli: Cli) -> None:
    done = cli("run", "agents", "boom")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "parrot:\nRuntimeError: the model is on fire\n"


def test_an_ambiguous_or_unknown_agent_is_refused(cli: Cli) -> None:
    cli.write("agents/broken/agent.py", "import missing_library")
    assert (
        "There are several agents in 'agents': broken, parrot. Choose one, for example agents:broken"
        in cli("run", "agents", "hi").stderr
    )
    assert "App not found: 'other'. Known apps: broken, parrot" in cli("run", "agents:other", "hi").stderr
    done = cli("run", "agents:broken", "hi")
    assert done.returncode == 1
    assert done.stderr == (
        "App 'broken' can't be loaded: ModuleNotFoundError: No module named 'missing_library' (broken/agent.py:1)\n"
    )
    assert cli("run", "agents:parrot", "hi").stdout == "hi \n"


def test_an_empty_folder_has_no_agent(cli: Cli) -> None:
    cli.write("empty/readme.txt", "")
    assert cli("run", "empty", "hi").stderr.startswith("There is no agent in 'empty'")


def test_a_stored_conversation_can_be_continued(cli: Cli) -> None:
    kept = ("--session-service", "sqlite:///chats.db", "--session", "holiday")
    assert cli("run", "agents", "one", *kept).stdout == "one \n"
    again = cli("run", "agents", "two", *kept)
    assert again.stdout == "two \n"
    assert "Continuing session 'holiday' (2 events)" in again.stderr


# a chat


def test_lines_from_a_pipe_are_messages(cli: Cli) -> None:
    done = cli("run", "agents", stdin="one\n\nboom\ntwo")
    assert (done.returncode, done.stdout) == (0, "one \ntwo \n")
    assert done.stderr == "parrot:\nparrot:\nRuntimeError: the model is on fire\nparrot:\n"


def test_ctrl_d_ends_a_chat(terminal: Terminal) -> None:
    terminal.expect("you> ")
    terminal.type("hello there\n")
    assert "parrot:\r\nhello there \r\n" in terminal.expect("you> ")
    terminal.type("shout\n")
    assert '→ shout(text="hey")\r\n← shout: {"shouted":"HEY"}\r\nThe tool said HEY' in terminal.expect("you> ")
    terminal.type(CTRL_D)
    assert terminal.exit_code() == 0


def test_ctrl_c_stops_the_answer_and_keeps_the_chat(terminal: Terminal) -> None:
    terminal.expect("you> ")
    terminal.type("wait forever now\n")
    terminal.expect("parrot:\r\nwait forever ")
    terminal.type(CTRL_C)
    terminal.expect("stopped")
    terminal.expect("you> ")
    terminal.type("still here\n")
    terminal.expect("parrot:\r\nstill here ")
    terminal.expect("you> ")
    # Again and again: Python overlooks a signal between writing a prompt and waiting for the first key.
    assert terminal.exit_code(while_pressing=CTRL_C) == 0


def test_an_error_keeps_the_chat(terminal: Terminal) -> None:
    terminal.expect("you> ")
    terminal.type("boom\n")
    terminal.expect("RuntimeError: the model is on fire")
    terminal.expect("you> ")
    terminal.type("exit\n")
    assert terminal.exit_code() == 0


def test_ctrl_c_twice_leaves_an_answer_that_does_not_stop(cli: Cli) -> None:
    agent = """
        import asyncio
        from greenroom import BaseLlm, LlmAgent

        class Stubborn(BaseLlm):
            async def generate_content_async(self, llm_request, stream=False):
                print("thinking", flush=True)
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    print("not yet", flush=True)
                    await asyncio.sleep(3600)
                yield

        root_agent = LlmAgent(name="stubborn", model=Stubborn(model="stubborn"))
        """
    cli.write("agents/stubborn/agent.py", agent)
    terminal = Terminal(cli, "run", "agents:stubborn")
    try:
        terminal.expect("you> ")
        terminal.type("hello\n")
        terminal.expect("thinking")
        terminal.type(CTRL_C)
        terminal.expect("not yet")
        terminal.type(CTRL_C)
        terminal.expect("left before the answer had stopped")
        assert terminal.exit_code() == 0
    finally:
        terminal.close()


def test_lines_of_earlier_chats_are_remembered(cli: Cli) -> None:
    for text in ("remember me\n", "\x1b[A\n"):
        terminal = Terminal(cli, "run", "agents")
        try:
            terminal.expect("you> ")
            terminal.type(text)
            terminal.expect("parrot:\r\nremember me ")
            terminal.expect("you> ")
            terminal.type(CTRL_D)
            assert terminal.exit_code() == 0
        finally:
            terminal.close()
