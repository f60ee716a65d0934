from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.errors import StorageError
from greenroom.plugins import save_files_as_artifacts
from greenroom.plugins.save_files_as_artifacts import SaveFilesAsArtifactsPlugin
from greenroom.records.content import Blob, Content, FileData, Part
from greenroom.records.listings import ArtifactVersion
from greenroom.runner.runner import Runner
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.plugins.watched import WatchedTalk

PLACE: dict[str, Any] = {"app_name": "app", "user_id": "ada", "session_id": "s-1"}


def file(data: bytes, name: str | None = None) -> Part:
    return Part(inline_data=Blob(data=data, mime_type="text/csv", display_name=name))


def message(*parts: Part) -> Content:
    return Content(role="user", parts=list(parts))


class Published(InMemoryArtifactService):
    """A store whose artifacts have an address."""

    def __init__(self, address: str = "gs://bucket/x") -> None:
        super().__init__()
        self._address = address

    async def get_artifact_version(self, **place: Any) -> ArtifactVersion | None:
        version = await super().get_artifact_version(**place)
        return version and msgspec.structs.replace(version, canonical_uri=self._address)


class Full(InMemoryArtifactService):
    async def save_artifact(self, **_: Any) -> int:
        raise StorageError("save_artifact", "disk full")


def talk_with(artifacts: InMemoryArtifactService | None, **options: Any) -> WatchedTalk:
    plugin = SaveFilesAsArtifactsPlugin(**options)
    talk = WatchedTalk(LlmAgent(name="a", model=ScriptedModel(["ok"], loop=True)), plugin)
    app = App(name="app", root_agent=talk.runner.agent, plugins=[plugin])
    talk.runner = Runner(app=app, session_service=InMemorySessionService(), artifact_service=artifacts)  # pyright: ignore[reportAttributeAccessIssue]
    return talk


async def stored_parts(talk: WatchedTalk) -> list[Part]:
    content = (await talk.log())[0].content
    assert content is not None
    return content.parts or []


async def test_a_file_becomes_an_artifact_and_its_name_stays_in_the_message() -> None:
    artifacts = InMemoryArtifactService()
    talk = talk_with(artifacts)
    sent = file(b"a,b", "table.csv")
    await talk.say(message(Part(text="Look:"), sent, Part(text="Well?")))
    before, placeholder, after = await stored_parts(talk)
    assert (before.text, after.text) == ("Look:", "Well?")
    assert placeholder == Part(text='[Uploaded file, saved as the artifact "table.csv"]')
    assert await artifacts.load_artifact(**PLACE, filename="table.csv") == sent


async def test_a_file_without_a_name_is_named_after_run_and_place() -> None:
    artifacts = InMemoryArtifactService()
    await talk_with(artifacts).say(message(Part(text="Look:"), file(b"a"), file(b"b")), invocation_id="e-1")
    names = await artifacts.list_artifact_keys(**PLACE)
    assert names == ["artifact_e-1_1", "artifact_e-1_2"]


async def test_the_versions_ride_on_the_first_event_of_the_agent_and_on_no_other() -> None:
    talk = talk_with(InMemoryArtifactService())
    events = await talk.say(message(file(b"a", "x"), file(b"b", "y"), file(b"c", "x")))
    assert [event.actions.artifact_delta for event in events] == [{"x": 1, "y": 0}, {}]
    assert [event.actions.artifact_delta for event in await talk.say("and?")] == [{}]


async def test_an_address_that_models_can_read_follows_as_a_reference() -> None:
    talk = talk_with(Published())
    await talk.say(message(file(b"a", "x")))
    placeholder, reference = await stored_parts(talk)
    assert placeholder.text is not None
    assert reference.file_data == FileData(file_uri="gs://bucket/x", mime_type="text/csv", display_name="x")

    talk = talk_with(Published(), attach_file_reference=False)
    await talk.say(message(file(b"a", "x")))
    assert len(await stored_parts(talk)) == 1


@pytest.mark.parametrize(
    ("address", "is_readable"),
    [("gs://b/x", True), ("http://h/x", True), ("https://h/x", True), ("s3://b/x", False), ("memory://x", False)],
)
async def test_only_addresses_that_models_can_read_are_referred_to(address: str, is_readable: bool) -> None:
    talk = talk_with(Published(address))
    await talk.say(message(file(b"a", "x")))
    references = [part.file_data.file_uri for part in await stored_parts(talk) if part.file_data]
    assert references == ([address] if is_readable else [])


async def test_a_file_that_is_too_large_is_refused_with_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert save_files_as_artifacts.MAX_FILE_BYTES == 20 * 1024 * 1024
    monkeypatch.setattr(save_files_as_artifacts, "MAX_FILE_BYTES", 10)
    artifacts = InMemoryArtifactService()
    talk = talk_with(artifacts)
    await talk.say(message(file(b"x" * 10, "fits"), file(b"x" * 11, "large")))
    fits, large = await stored_parts(talk)
    assert "saved as the artifact" in (fits.text or "")
    assert (large.text or "").startswith('[Error: the file "large" has 0.0 MiB; at most 20 MiB')
    assert await artifacts.list_artifact_keys(**PLACE) == ["fits"]


async def test_a_file_that_can_not_be_saved_stays(caplog: pytest.LogCaptureFixture) -> None:
    talk = talk_with(Full())
    with caplog.at_level(logging.ERROR):
        await talk.say(message(file(b"a", "x")))
    assert await stored_parts(talk) == [file(b"a", "x")]
    assert "could not save the file x" in caplog.text


async def test_a_name_that_leaves_its_place_is_not_saved() -> None:
    talk = talk_with(InMemoryArtifactService())
    await talk.say(message(file(b"a", "../../x")))
    assert await stored_parts(talk) == [file(b"a", "../../x")]


async def test_without_a_store_or_a_file_the_message_is_left_alone() -> None:
    talk = talk_with(None)
    await talk.say(message(file(b"a", "x")))
    assert await stored_parts(talk) == [file(b"a", "x")]
    talk = talk_with(InMemoryArtifactService())
    reference = Part(file_data=FileData(file_uri="gs://b/x"))
    await talk.say(message(Part(text="hi"), reference))
    assert await stored_parts(talk) == [Part(text="hi"), reference]
