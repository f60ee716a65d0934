"""Contract of artifact stores.

Star-import these tests into a test file that has a fixture `artifact_service`: a new, empty store
for each test. Needs pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

import msgspec
import pytest

from greenroom.artifacts.service import BaseArtifactService
from greenroom.errors import InvalidRequest, TooLarge
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, FileData, FunctionCall, Part
from greenroom.records.listings import ArtifactVersion, ListArtifactsResponse, ListArtifactVersionsResponse

_HERE: JsonObject = {"app_name": "concierge", "user_id": "ann", "session_id": "s-7"}

_PARTS = [
    Part.from_bytes(data=b"\x89PNG\r\n\x1a\n\0\n{}\xff", mime_type="image/png"),
    Part(inline_data=Blob(data=b"", mime_type="text/plain")),
    Part(inline_data=Blob(data=b"x" * 100_000, mime_type="text/csv", display_name="größe\n\u2028.csv")),
    Part(inline_data=Blob(data=b"no type")),
    Part.from_text(text=""),
    Part.from_text(text='{"looks": "like JSON"}\n日本\u0085\u2028語 🎭'),
    Part.from_uri(file_uri="gs://bucket/a b.mp4", mime_type="video/mp4"),
    Part(file_data=FileData(file_uri="https://example.org/x", display_name="x")),
]

# Names and ids that a store must keep apart, and those that it must refuse.
_NAMES = [
    "report", "report/1", "report/1/2", "report/versions/0", "report/versions", "report/0/versions/0", "0", "1/1",
    "user/a", "a.png", "a.png.json", "a png", " a", "a ", "a.", "a..", "...", ".hidden", "a%2Fb", "a/b", "a%252Fb",
    "a\\b", "..\\..\\b", "a#1", "a#1/0", "a?b*c<d>|\"'", "a:b", "C:/x", "~/x", "~root", "%2e%2e/x", "a\nb",
    "caf\u00e9", "cafe\u0301", "日本語.txt", "🎭", "l" * 300, "l" * 300 + "/" + "m" * 300, "user:profile.json",
    "user:report/1", "user:report", "user:user:x", "users:x",
]  # fmt: skip

_BAD_NAMES = [
    "", "..", ".", "../b", "a/..", "a/../b", "a/../../b", "./a", "/etc/passwd", "a//b", "a/", "nul\0", "\0", "user:",
    "user:..", "user:../../x", "user:/x", "\ud800", "é" * 513,
]  # fmt: skip

_BAD_IDS = ["", ".", "..", "nul\0", "\0", "\udfff", "x" * 1025]

_ODD_IDS = [
    "a/../../b", "/etc/passwd", "../../x", "a/b", "a%2Fb", "a\\b", "%2e%2e", "a b", "a.", "42", "ann@example.org",
    "üser", "u\u0308ser", "i" * 300,
]  # fmt: skip
"""May be refused; an accepted one must neither leave its directory nor collide."""


async def test_newest_version_is_loaded_when_none_is_named(artifact_service: BaseArtifactService) -> None:
    for number in range(12):
        assert await _save(artifact_service, "a.txt", f"text {number}") == number
    assert await artifact_service.list_versions(**_HERE, filename="a.txt") == list(range(12))
    assert await _text(artifact_service, "a.txt") == "text 11"
    assert await _text(artifact_service, "a.txt", version=9) == "text 9"


@pytest.mark.parametrize("part", _PARTS, ids=range(len(_PARTS)))
async def test_part_comes_back_as_it_was_saved(
    artifact_service: BaseArtifactService,
    part: Part,
) -> None:
    saved = msgspec.json.decode(msgspec.json.encode(part), type=Part)
    version = await artifact_service.save_artifact(**_HERE, filename="a", artifact=part)
    assert part == saved
    assert await artifact_service.load_artifact(**_HERE, filename="a", version=version) == part
    assert await artifact_service.load_artifact(**_HERE, filename="a") == part
    described = part.inline_data or part.file_data
    assert (await _version(artifact_service, "a")).mime_type == (described.mime_type if described else "text/plain")


async def test_version_that_a_rewind_saved_to_remove_an_artifact_is_not_loaded(
    artifact_service: BaseArtifactService,
) -> None:
    removed = Part(inline_data=Blob(data=b"", mime_type="application/octet-stream"))
    await artifact_service.save_artifact(**_HERE, filename="a", artifact=_PARTS[0])
    await artifact_service.save_artifact(**_HERE, filename="a", artifact=removed)
    assert await artifact_service.load_artifact(**_HERE, filename="a") is None
    assert await artifact_service.load_artifact(**_HERE, filename="a", version=0) == _PARTS[0]


@pytest.mark.parametrize(
    "part",
    [Part(), Part(function_call=FunctionCall(name="f")), Part(inline_data=Blob()), Part(file_data=FileData())],
    ids=["empty", "function call", "blob without data", "file without address"],
)
async def test_other_parts_are_refused(artifact_service: BaseArtifactService, part: Part) -> None:
    with pytest.raises(InvalidRequest, match=r"Not supported artifact type\."):
        await artifact_service.save_artifact(**_HERE, filename="a", artifact=part)
    assert await artifact_service.list_versions(**_HERE, filename="a") == []


@pytest.mark.parametrize("too_large", [Part(text="\u00e4" * 3 + "."), Part.from_bytes(data=b"x" * 7, mime_type="x/y")])
async def test_what_is_over_the_limit_is_refused(
    artifact_service: BaseArtifactService,
    too_large: Part,
) -> None:
    artifact_service.limit_bytes = 6
    await artifact_service.save_artifact(**_HERE, filename="a", artifact=Part(text="\u00e4" * 3))
    with pytest.raises(TooLarge) as refused:
        await artifact_service.save_artifact(**_HERE, filename="a", artifact=too_large)
    assert refused.value.limit_bytes == 6
    assert await artifact_service.list_versions(**_HERE, filename="a") == [0]


async def test_changes_to_a_saved_or_loaded_part_stay_outside(artifact_service: BaseArtifactService) -> None:
    part = Part.from_bytes(data=b"first", mime_type="text/plain")
    metadata: JsonObject = {"tags": ["first"]}
    await artifact_service.save_artifact(
        **_HERE,
        filename="a",
        artifact=part,
        custom_metadata=metadata,
    )

    for own_part in (part, await artifact_service.load_artifact(**_HERE, filename="a")):
        assert own_part is not None
        assert own_part.inline_data is not None
        own_part.inline_data.data = b"changed"

    metadata["tags"].append("changed")
    (await _version(artifact_service, "a")).custom_metadata["tags"].append("changed")
    assert await artifact_service.load_artifact(**_HERE, filename="a") == Part.from_bytes(
        data=b"first", mime_type="text/plain"
    )
    assert (await _version(artifact_service, "a")).custom_metadata == {"tags": ["first"]}


async def test_what_is_not_there_is_none_or_empty(artifact_service: BaseArtifactService) -> None:
    await _save(artifact_service, "a/b", "text")
    for filename, version in (("x", None), ("x", 0), ("a", None), ("a/b", 1), ("a/b", -1), ("a/b", 10**30), ("A/b", 0)):
        assert await artifact_service.load_artifact(**_HERE, filename=filename, version=version) is None
        assert await artifact_service.get_artifact_version(**_HERE, filename=filename, version=version) is None
    assert await artifact_service.list_versions(**_HERE, filename="a") == []
    elsewhere = _at(session_id="another")
    assert await artifact_service.list_artifact_keys(**elsewhere) == []


async def test_what_is_known_of_a_version(artifact_service: BaseArtifactService) -> None:
    before = time.time()
    metadata = {"deep": {"list": [1, 2.5, None, True, "ü\n"]}, "long": "x" * 20_000}
    image = Part.from_bytes(data=b"png", mime_type="image/png")
    await _save(artifact_service, "a.png", "older")
    await artifact_service.save_artifact(
        **_HERE,
        filename="a.png",
        artifact=image,
        custom_metadata=metadata,
    )
    version = await _version(artifact_service, "a.png")
    assert (version.version, version.mime_type, version.custom_metadata) == (1, "image/png", metadata)
    assert before - 1 <= version.create_time <= time.time() + 1
    older = await _version(artifact_service, "a.png", version=0)
    assert (older.version, older.mime_type, older.custom_metadata) == (0, "text/plain", {})
    assert older.canonical_uri != version.canonical_uri
    assert "://" in older.canonical_uri


async def test_user_names_are_seen_from_all_sessions_of_the_user_in_the_app(
    artifact_service: BaseArtifactService,
) -> None:
    await _save(artifact_service, "user:profile", "of ann")
    await _save(artifact_service, "mine", "of s-7")
    other_session = _at(session_id="s-8")
    assert await artifact_service.list_artifact_keys(**other_session) == ["user:profile"]
    loaded = await artifact_service.load_artifact(**other_session, filename="user:profile")
    assert loaded == Part.from_text(text="of ann")
    again = await artifact_service.save_artifact(
        **other_session,
        filename="user:profile",
        artifact=Part(text="new"),
    )
    assert again == 1
    assert await _text(artifact_service, "user:profile") == "new"

    for other in ({"user_id": "bob"}, {"app_name": "other"}):
        assert await artifact_service.list_artifact_keys(**_at(**other)) == []
        assert await artifact_service.load_artifact(**_at(**other), filename="user:profile") is None


async def test_user_names_are_apart_from_a_session_called_user(artifact_service: BaseArtifactService) -> None:
    await _save(artifact_service, "user:profile", "of ann")

    called_user = _at(session_id="user")
    try:
        await artifact_service.save_artifact(
            **called_user,
            filename="a",
            artifact=Part(text="of the session"),
        )
    except InvalidRequest:
        return

    assert await artifact_service.list_artifact_keys(**_HERE) == ["user:profile"]


async def test_no_two_names_collide(artifact_service: BaseArtifactService) -> None:
    for repeat in range(2):
        for name in _NAMES:
            assert await _save(artifact_service, name, f"{name} {repeat}") == repeat

    assert await artifact_service.list_artifact_keys(**_HERE) == sorted(_NAMES)

    for name in _NAMES:
        assert await artifact_service.list_versions(**_HERE, filename=name) == [0, 1]
        for version in (0, 1):
            assert await _text(artifact_service, name, version=version) == f"{name} {version}"

    uris = {(await _version(artifact_service, name)).canonical_uri for name in _NAMES}
    assert len(uris) == len(_NAMES)


@pytest.mark.parametrize("name", _BAD_NAMES, ids=ascii)
async def test_names_that_would_leave_their_scope_are_refused(
    artifact_service: BaseArtifactService,
    name: str,
) -> None:
    await _refused(artifact_service, _at(filename=name))


@pytest.mark.parametrize("field", list(_HERE))
@pytest.mark.parametrize("value", _BAD_IDS, ids=lambda value: ascii(value)[:12])
async def test_ids_that_would_leave_their_scope_are_refused(
    artifact_service: BaseArtifactService, field: str, value: str
) -> None:
    scope = _at(**{field: value})
    await _refused(artifact_service, _at(**{field: value, "filename": "a"}))
    with pytest.raises(InvalidRequest):
        await artifact_service.list_artifact_keys(**scope)


@pytest.mark.parametrize("field", list(_HERE))
async def test_odd_ids_are_refused_or_kept_apart(
    artifact_service: BaseArtifactService,
    field: str,
) -> None:
    taken: list[str] = []
    for value in _ODD_IDS:
        try:
            version = await artifact_service.save_artifact(
                **_at(**{field: value}), filename="a", artifact=Part(text=value)
            )
        except InvalidRequest:
            continue

        taken.append(value)
        assert version == 0

    for value in taken:
        scope = _at(**{field: value})
        assert await artifact_service.list_artifact_keys(**scope) == ["a"]
        assert await artifact_service.load_artifact(**scope, filename="a") == Part(text=value)

    assert await artifact_service.list_artifact_keys(**_HERE) == []


async def test_ids_and_names_do_not_run_into_each_other(artifact_service: BaseArtifactService) -> None:
    keys = [
        ("a", "b", "c", "d/e"),
        ("a", "b", "c/d", "e"),
        ("a", "b/c", "d", "e"),
        ("a/b", "c", "d", "e"),
    ]
    for app_name, user_id, session_id, filename in keys:
        version = await artifact_service.save_artifact(
            app_name=app_name, user_id=user_id, session_id=session_id, filename=filename, artifact=Part(text=app_name)
        )
        assert version == 0


@pytest.mark.parametrize("filename", ["a", "user:a"])
async def test_50_savers_at_once_get_50_versions(
    artifact_service: BaseArtifactService,
    filename: str,
) -> None:
    async with asyncio.timeout(60):
        versions = await asyncio.gather(*(_save(artifact_service, filename, f"saver {n}") for n in range(50)))
    assert sorted(versions) == list(range(50))
    assert await artifact_service.list_versions(**_HERE, filename=filename) == list(range(50))
    for saver, version in enumerate(versions):
        assert await _text(artifact_service, filename, version=version) == f"saver {saver}"


async def test_deleting_removes_all_versions_of_that_name_alone(artifact_service: BaseArtifactService) -> None:
    for name in ("a", "a", "a", "a/1", "ab", "user:a"):
        await _save(artifact_service, name, name)

    await artifact_service.delete_artifact(**_HERE, filename="a")
    assert await artifact_service.list_artifact_keys(**_HERE) == ["a/1", "ab", "user:a"]
    assert await artifact_service.list_versions(**_HERE, filename="a") == []
    assert await artifact_service.load_artifact(**_HERE, filename="a") is None
    assert await artifact_service.load_artifact(**_HERE, filename="a", version=1) is None
    await artifact_service.delete_artifact(**_at(session_id="s-8"), filename="user:a")
    for missing in ("a", "nothing"):
        await artifact_service.delete_artifact(**_HERE, filename=missing)

    assert await artifact_service.list_artifact_keys(**_HERE) == ["a/1", "ab"]
    version = await _save(artifact_service, "a", "new")
    assert await artifact_service.list_versions(**_HERE, filename="a") == [version]
    assert await _text(artifact_service, "a") == "new"


async def test_saving_and_deleting_at_once_fails_for_nobody(artifact_service: BaseArtifactService) -> None:
    async def save(number: int) -> None:
        await _save(artifact_service, "deep/er/a", f"saver {number}")

    async def delete() -> None:
        await artifact_service.delete_artifact(**_HERE, filename="deep/er/a")

    async with asyncio.timeout(60):
        await asyncio.gather(*(save(number) if number % 3 else delete() for number in range(60)))

    for version in await artifact_service.list_versions(**_HERE, filename="deep/er/a"):
        assert (await _text(artifact_service, "deep/er/a", version=version)).startswith("saver ")

    await delete()
    assert await artifact_service.list_artifact_keys(**_HERE) == []


def _at(**changed: str) -> JsonObject:
    return {**_HERE, **changed}


async def _save(artifact_service: BaseArtifactService, filename: str, text: str) -> int:
    return await artifact_service.save_artifact(
        **_HERE,
        filename=filename,
        artifact=Part.from_text(text=text),
    )


async def _text(
    artifact_service: BaseArtifactService,
    filename: str,
    version: int | None = None,
) -> str:
    part = await artifact_service.load_artifact(**_HERE, filename=filename, version=version)
    assert part is not None
    assert part.text is not None
    return part.text


async def _version(
    artifact_service: BaseArtifactService,
    filename: str,
    version: int | None = None,
) -> ArtifactVersion:
    known = await artifact_service.get_artifact_version(**_HERE, filename=filename, version=version)
    assert known is not None
    return known


async def _refused(artifact_service: BaseArtifactService, scope: JsonObject) -> None:
    for method in (
        partial(artifact_service.save_artifact, artifact=Part(text="x")),
        artifact_service.load_artifact,
        artifact_service.list_versions,
        artifact_service.get_artifact_version,
        artifact_service.delete_artifact,
    ):
        with pytest.raises(InvalidRequest):
            await method(**scope)


async def test_all_of_a_user_is_deleted(artifact_service: BaseArtifactService) -> None:
    users: list[JsonObject] = [_HERE, {**_HERE, "user_id": "anna"}, {**_HERE, "app_name": "porter"}]
    for user in users:
        for filename in ("a/b.txt", "user:c.txt"):
            await artifact_service.save_artifact(**user, filename=filename, artifact=Part(text="x"))
            await artifact_service.save_artifact(**user, filename=filename, artifact=Part(text="y"))

    await artifact_service.delete_user(app_name="concierge", user_id="ann")
    await artifact_service.delete_user(app_name="concierge", user_id="nobody")
    both = ["a/b.txt", "user:c.txt"]
    assert [await artifact_service.list_artifact_keys(**user) for user in users] == [[], both, both]


async def test_listings_are_lists_and_have_the_names_of_the_contract(artifact_service: BaseArtifactService) -> None:
    for text in ("one", "two"):
        await _save(artifact_service, "a.txt", text)

    names = await artifact_service.list_artifact_keys(**_HERE)
    assert isinstance(names, ListArtifactsResponse)
    assert names.filenames == names == ["a.txt"]

    versions = await artifact_service.list_artifact_versions(**_HERE, filename="a.txt")
    assert isinstance(versions, ListArtifactVersionsResponse)
    assert versions.versions == [await _version(artifact_service, "a.txt", version=n) for n in (0, 1)]
    assert await artifact_service.list_artifact_versions(**_HERE, filename="b.txt") == []
