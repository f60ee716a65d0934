"""A session is loaded from its last compaction on, and shows all of its events when they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.invocation.compaction import EventsCompactionConfig
from greenroom.records.content import Content, Part, UserContent
from greenroom.records.event import Event
from greenroom.records.session import Session
from greenroom.runner.runner import Runner
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.runner.test_compaction import Summarizer, echo, texts

KEY: dict[str, Any] = {"app_name": "a", "user_id": "ada", "session_id": "s"}
CALL: dict[str, Any] = {"user_id": "ada", "session_id": "s"}


class Host:
    """A runner on a database file; each time it is opened nothing is in memory."""

    def __init__(self, folder: Path, **config: int) -> None:
        self.model = ScriptedModel(echo)
        self.summarizer = Summarizer()
        self.sessions = SqliteSessionService(folder / "sessions.db")
        compaction = EventsCompactionConfig(summarizer=self.summarizer, **config)
        app = App(name="a", root_agent=LlmAgent(name="a", model=self.model), events_compaction_config=compaction)
        self.runner = Runner(app=app, session_service=self.sessions)

    async def say(self, words: str, run: str | None = None) -> list[str | None]:
        """The texts of the prompt."""
        message = UserContent(words)
        _ = [event async for event in self.runner.run_async(**CALL, new_message=message, invocation_id=run)]
        return texts(self.model.requests[-1].contents)

    async def whole(self) -> Session:
        session = await self.sessions.get_session(**KEY)
        assert session is not None
        return session

    async def close(self) -> None:
        await self.runner.close()
        await self.sessions.close()


def long_log(runs: int) -> list[Event]:
    said = [("user", "Please remember this number:"), ("a", "I will remember this number:")]
    return [
        Event(
            invocation_id=f"e-{run}",
            author=author,
            content=Content(role="user" if author == "user" else "model", parts=[Part(text=f"{text} {run}")]),
        )
        for run in range(runs)
        for author, text in said
    ]


async def test_loading_a_long_session_decodes_what_a_short_one_does(tmp_path: Path) -> None:
    decoded: list[int] = []
    for runs in (50, 1_000):
        folder = tmp_path / str(runs)
        folder.mkdir()
        host = Host(folder, compaction_interval=2, overlap_size=1)
        await host.sessions.create_session(**KEY, events=long_log(runs))
        await host.say("one")
        assert len(host.summarizer.given) == 1
        await host.close()
        host = Host(folder, compaction_interval=2, overlap_size=1)
        assert await host.say("two") == ["S1", "two"]
        decoded.append(host.sessions.events_decoded)
        session = await host.whole()
        assert len(session.events) == 2 * runs + 5
        assert session.events[0].content == long_log(1)[0].content
        await host.close()
    assert decoded[0] == decoded[1] <= 5


async def test_earlier_summaries_and_new_ones_are_in_the_prompt_after_each_restart(tmp_path: Path) -> None:
    config = {"compaction_interval": 2, "overlap_size": 1}
    host = Host(tmp_path, **config)
    await host.sessions.create_session(**KEY)
    prompts: list[list[str | None]] = []
    for number in "1234567":
        prompts.append(await host.say(f"{number} is the number of this message, which is long enough"))
        await host.close()
        given = host.summarizer.given
        host = Host(tmp_path, **config)
        host.summarizer.given = given
    assert [len(prompt) for prompt in prompts] == [1, 3, 2, 4, 3, 5, 4]
    assert prompts[-1][:3] == ["S1", "S2", "S3"]
    assert host.summarizer.given[2][0] == "4 is the number of this message, which is long enough"
    assert len((await host.whole()).events) == 17
    await host.close()


async def test_a_rewind_to_before_the_loaded_events_brings_back_the_older_ones(tmp_path: Path) -> None:
    config = {"compaction_interval": 2, "overlap_size": 0}
    host = Host(tmp_path, **config)
    await host.sessions.create_session(**KEY)
    for number in "123":
        await host.say(number, f"e-{number}")
    await host.close()
    host = Host(tmp_path, **config)
    await host.runner.rewind_async(**CALL, rewind_before_invocation_id="e-2")
    await host.close()
    host = Host(tmp_path, **config)
    assert await host.say("4", "e-4") == ["1", "re 1", "4"]
    await host.close()
    host = Host(tmp_path, **config)
    assert await host.say("5") == ["S1", "5"]
    assert host.sessions.events_decoded < 10
    await host.close()


async def test_a_fork_inherits_the_compactions_before_it(tmp_path: Path) -> None:
    host = Host(tmp_path, compaction_interval=2, overlap_size=0)
    await host.sessions.create_session(**KEY)
    for number in "1234":
        await host.say(f"{number} and more words to be summarized")
    await host.close()
    host = Host(tmp_path, compaction_interval=2, overlap_size=0)
    for seq, start in ((4, 4), (5, 1), (9, 5)):
        fork = await host.sessions.fork_session(**KEY, seq=seq, new_session_id=f"f-{seq}")
        _ = [e async for e in host.runner.run_async(user_id="ada", session_id=fork.id, new_message=UserContent("x"))]
        assert len(texts(host.model.requests[-1].contents)) == start + 1
    await host.close()
