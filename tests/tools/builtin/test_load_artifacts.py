"""Artifacts that a model looks into."""

from __future__ import annotations

import io
import logging
import zipfile
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.content import Blob, FileData, Part
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.artifact_contents import DOCX, XLSX
from greenroom.tools.builtin.load_artifacts import LoadArtifactsTool, load_artifacts
from tests.agents.talk import Talk, call, lines_of, shown

PNG = Part(inline_data=Blob(data=b"\x89PNG", mime_type="image/png"))


def blob(mime_type: str | None, data: bytes | str) -> Part:
    return Part(inline_data=Blob(data=data.encode() if isinstance(data, str) else data, mime_type=mime_type))


class Looking:
    """An agent that loads the artifacts of the message, then answers."""

    def __init__(
        self,
        *names: str,
        tool: LoadArtifactsTool = load_artifacts,
        replies: list[Any] | None = None,
        more: tuple[Any, ...] = (),
    ) -> None:
        self.model = ScriptedModel(replies or [call("load_artifacts", artifact_names=list(names)), "seen", "bye"])
        self.talk = Talk(LlmAgent(name="a", model=self.model, tools=[tool, *more]))

    async def put(self, **artifacts: Part) -> None:
        for name, part in artifacts.items():
            await self.save(name, part)

    async def save(self, name: str, part: Part) -> None:
        service = self.talk.runner.artifact_service
        assert service is not None
        await service.save_artifact(
            app_name="app", user_id="ada", session_id=self.talk.session_id, filename=name, artifact=part
        )

    async def shown_parts(self) -> list[Part]:
        """The model's prompt after its call."""
        await self.talk.say("look")
        contents = list(self.model.requests[1].contents)[3:]
        assert all(content.role == "user" for content in contents)
        return [part for content in contents for part in content.parts or ()]


async def shown_as(name: str, part: Part) -> Part:
    looking = Looking(name)
    await looking.save(name, part)
    title, shown_part = await looking.shown_parts()
    assert title == Part(text=f"Artifact {name} is:")
    return shown_part


async def test_names_are_listed_as_json_in_every_request_once_there_are_artifacts() -> None:
    looking = Looking(replies=["nothing here", "something here"])
    await looking.talk.say("hi")
    await looking.put(**{"plan.txt": blob("text/plain", "x"), "user:ünï": PNG})
    await looking.talk.say("hi again")
    first, second = (request.config.system_text() for request in looking.model.requests)
    assert "load_artifacts" not in first
    assert '["plan.txt", "user:ünï"]' in second
    assert "`load_artifacts`" in second
    (declaration,) = looking.model.requests[0].function_declarations()
    assert declaration.name == "load_artifacts"
    parameters = declaration.json_schema()
    assert parameters["properties"]["artifact_names"]["items"] == {"type": "string"}
    assert "required" not in parameters


async def test_what_was_asked_for_is_shown_in_the_next_request_only_and_never_stored() -> None:
    looking = Looking("a.png", "b.txt")
    await looking.put(**{"a.png": PNG, "b.txt": blob("text/plain", "bee"), "c.txt": blob("text/plain", "sea")})
    events = await looking.talk.say("look")
    (response,) = events[1].get_function_responses()
    status = (
        "artifact contents temporarily inserted and removed. to access these artifacts, call load_artifacts tool again."
    )
    assert response.response == {"artifact_names": ["a.png", "b.txt"], "status": status}
    assert [list(content.parts or ()) for content in list(looking.model.requests[1].contents)[3:]] == [
        [Part(text="Artifact a.png is:"), PNG],
        [Part(text="Artifact b.txt is:"), Part(text="bee")],
    ]
    await looking.talk.say("and now?")
    assert [line for line in shown(looking.model.requests[2]) if "Artifact" in line] == []
    assert [line for line in lines_of(await looking.talk.log()) if "Artifact" in line] == []


async def test_a_response_beside_others_counts_too_wherever_it_stands() -> None:
    def clock() -> str:
        """Tells the time."""
        return "noon"

    both = [call("clock"), call("load_artifacts", artifact_names=["b.txt"])]
    looking = Looking(replies=[both, "seen"])
    looking.talk = Talk(LlmAgent(name="a", model=looking.model, tools=[clock, load_artifacts]))
    await looking.put(**{"b.txt": blob("text/plain", "bee")})
    assert (await looking.shown_parts())[-1] == Part(text="bee")


async def test_names_that_do_not_exist_show_nothing() -> None:
    looking = Looking("z.txt", "../b.txt")
    await looking.put(**{"b.txt": blob("text/plain", "bee")})
    assert await looking.shown_parts() == []


@pytest.mark.parametrize(("stored", "asked"), [("user:b.txt", "b.txt"), ("b.txt", "user:b.txt")])
async def test_the_mark_of_a_users_artifact_may_be_missing_or_too_much(stored: str, asked: str) -> None:
    looking = Looking(asked)
    await looking.save(stored, blob("text/plain", "bee"))
    assert (await looking.shown_parts())[-1] == Part(text="bee")


@pytest.mark.parametrize("wrong", ["a.png", [1], {"name": "a.png"}])
async def test_wrong_arguments_are_reported_to_the_model(wrong: Any) -> None:
    looking = Looking(replies=[call("load_artifacts", artifact_names=wrong), "sorry"])
    await looking.put(**{"a.png": PNG})
    events = await looking.talk.say("look")
    (response,) = events[1].get_function_responses()
    assert response.response is not None
    assert response.response["error_code"] == "INVALID_ARGUMENTS"
    assert "artifact_names" in response.response["error"]


async def test_a_response_of_another_tool_shows_nothing() -> None:
    def rename(old: str) -> dict[str, Any]:
        """Renames an artifact."""
        return {"artifact_names": [old]}

    looking = Looking(replies=[call("rename", old="a.png"), "ok"], more=(rename,))
    await looking.put(**{"a.png": PNG})
    assert await looking.shown_parts() == []


async def test_a_call_without_names_loads_nothing() -> None:
    looking = Looking(replies=[call("load_artifacts"), "ok"])
    await looking.put(**{"a.png": PNG})
    assert await looking.shown_parts() == []


@pytest.mark.parametrize("mime_type", ["image/png", "audio/wav", "video/mp4", "application/pdf"])
async def test_media_that_models_know_is_sent_as_it_is(mime_type: str) -> None:
    part = blob(mime_type, b"\x00\xff")
    assert await shown_as("a", part) == part


async def test_a_file_reference_is_sent_as_it_is() -> None:
    part = Part(file_data=FileData(file_uri="gs://bucket/film.mp4", mime_type="video/mp4"))
    assert await shown_as("a", part) == part


@pytest.mark.parametrize(
    ("mime_type", "data", "text"),
    [
        ("text/plain", "bee", "bee"),
        ("text/html; charset=latin-1", b"caf\xe9", "café"),
        ("text/plain; charset=nonsense", "café", "café"),
        ("text/csv", b"\xef\xbb\xbfa,b", "a,b"),
        ("application/json", '{"a": "é"}', '{"a": "é"}'),
        ("application/csv", "a,b", "a,b"),
        ("application/xml", "<a/>", "<a/>"),
        ("application/ld+json", "{}", "{}"),
        ("image/svg+xml", "<svg/>", "<svg/>"),
        ("TEXT/PLAIN", b"\xff\xfea\x00", "a"),
        ("text/plain", b"bad \xff", "bad \ufffd"),
    ],
)
async def test_text_is_decoded(mime_type: str, data: bytes | str, text: str) -> None:
    assert await shown_as("a", blob(mime_type, data)) == Part(text=text)


async def test_an_unknown_type_is_guessed_from_the_name() -> None:
    assert await shown_as("a.json", blob("application/octet-stream", "{}")) == Part(text="{}")
    assert await shown_as("a.png", blob("application/octet-stream", b"x")) == blob("image/png", b"x")


async def test_other_binary_is_a_note_with_name_type_and_size() -> None:
    text = (await shown_as("a.zip", blob("application/zip", b"x" * 1536))).text or ""
    assert "a.zip" in text
    assert "application/zip" in text
    assert "1.5 KB" in text


async def test_an_artifact_without_data_is_a_note() -> None:
    assert "no data" in ((await shown_as("a", blob("image/png", b""))).text or "")


def padded(data: bytes, size: int) -> bytes:
    """The archive with that many bytes more, which nobody reads."""
    buffer = io.BytesIO(data)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("padding", bytes(size), zipfile.ZIP_STORED)
    return buffer.getvalue()


def packed(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return buffer.getvalue()


W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
DOCUMENT = (
    f'<w:document xmlns:w="{W}"><w:body><w:p><w:r><w:t>Dear </w:t></w:r><w:r><w:t>Åsa,</w:t></w:r></w:p>'
    "<w:p><w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r></w:p></w:body></w:document>"
)


async def test_a_word_document_is_shown_as_its_text() -> None:
    data = packed(**{"word/document.xml": DOCUMENT})
    assert await shown_as("a.docx", blob(DOCX, data)) == Part(text="Dear Åsa,\na\tb")
    large = padded(data, 9 * 1024 * 1024)
    assert await shown_as("a.docx", blob(DOCX, large)) == Part(text="Dear Åsa,\na\tb")


async def test_a_workbook_is_shown_as_tables_of_a_hundred_rows() -> None:
    rows = "".join(f'<row r="{n}"><c r="A{n}"><v>{n}</v></c></row>' for n in range(2, 104))
    sheet = (
        f'<worksheet xmlns="{S}"><sheetData><row r="1"><c r="A1" t="s"><v>0</v></c>'
        f'<c r="C1" t="inlineStr"><is><t>a|b</t></is></c><c r="D1" t="b"><v>1</v></c></row>'
        f"{rows}</sheetData></worksheet>"
    )
    sheets = '<sheets><sheet name="Sums" r:id="r1"/></sheets>'
    relation = '<Relationship Id="r1" Target="worksheets/sheet1.xml"/>'
    data = packed(
        **{
            "xl/workbook.xml": f'<workbook xmlns="{S}" xmlns:r="{R}">{sheets}</workbook>',
            "xl/_rels/workbook.xml.rels": f"<Relationships>{relation}</Relationships>",
            "xl/sharedStrings.xml": f'<sst xmlns="{S}"><si><t>Num</t><t>ber</t></si></sst>',
            "xl/worksheets/sheet1.xml": sheet,
        }
    )
    lines = ((await shown_as("a.xlsx", blob(XLSX, data))).text or "").splitlines()
    assert lines[:4] == ["## Sums", "| Number |  | a\\|b | TRUE |", "| --- | --- | --- | --- |", "| 2 |  |  |  |"]
    assert lines[-2:] == ["| 100 |  |  |  |", "(3 more rows are not shown.)"]


@pytest.mark.parametrize(
    "data",
    [
        b"no archive",
        packed(other="x"),
        packed(**{"word/document.xml": "<broken"}),
        packed(**{"word/document.xml": f'<!DOCTYPE a [<!ENTITY e "x">]>{DOCUMENT}'}),
        packed(**{"word/document.xml": " " * (65 * 1024 * 1024)}),
        padded(packed(**{"word/document.xml": DOCUMENT}), 10 * 1024 * 1024),
    ],
    ids=["no archive", "no document", "broken", "entities", "bomb", "too large"],
)
async def test_a_document_that_can_not_be_read_is_a_note(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "greenroom.tools"):
        text = (await shown_as("a.docx", blob(DOCX, data))).text or ""
    assert text.startswith("[Artifact a.docx is binary")


async def test_a_callback_may_replace_a_part_leave_it_to_us_or_leave_it_out() -> None:
    async def process(name: str, part: Part) -> Part | None:
        return {"a.txt": Part(text="replaced"), "b.txt": part}.get(name)

    looking = Looking("a.txt", "b.txt", "c.txt", tool=LoadArtifactsTool(process_artifact=process))
    await looking.put(**{f"{letter}.txt": blob("text/plain", letter) for letter in "abc"})
    assert [part.text for part in await looking.shown_parts()] == [
        "Artifact a.txt is:", "replaced", "Artifact b.txt is:", "b",
    ]  # fmt: skip
