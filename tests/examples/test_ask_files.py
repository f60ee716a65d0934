"""Questions about a folder: passages that words and embeddings find, and citations that are checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.models.local import files as local_files
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.examples.gallery import check_transcript, converse, responses, served, transcript

QUESTION = "Can I do my job from Portugal for some weeks?"
ANSWER = (
    "Yes, for up to 30 working days a year. Tell the people team three weeks before [working_abroad.md, lines 1-5]."
)


@pytest.mark.model
async def test_the_local_embeddings_find_what_is_cited(tmp_path: Path) -> None:
    local_files.pull("smollm2-135m")
    model = ScriptedModel([call("search_files", query=QUESTION), ANSWER])
    async with served("ask_files", model, tmp_path) as server:
        events = await converse(server, "ask_files", QUESTION)
    check_transcript("ask_files", transcript(events))


async def test_a_citation_of_what_was_not_read_is_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the model's file, passages are found by their words."""
    monkeypatch.setenv("GREENROOM_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "dogs.md").write_text("Dogs are welcome on Fridays.\n")
    monkeypatch.setenv("ASK_FILES", str(folder))
    answer = "On Fridays [dogs.md, line 1], if they have a passport [pets.md, lines 2-3]."
    model = ScriptedModel([call("search_files", query="dogs"), answer])
    async with served("ask_files", model, tmp_path) as server:
        events = await converse(server, "ask_files", "May I bring my dog?")
    passage = {"file": "dogs.md", "position": "line 1", "text": "Dogs are welcome on Fridays."}
    assert responses(events) == [{"passages": [passage]}]
    said = events[-1]["content"]["parts"][0]["text"]
    assert said == "On Fridays [dogs.md, line 1], if they have a passport [not read: pets.md]."
