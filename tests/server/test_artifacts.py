"""Artifacts over HTTP."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.server.serving import Serving

ARTIFACTS = "/apps/echo/users/ann/sessions/s-7/artifacts"
PNG = {"inlineData": {"mimeType": "image/png", "data": "+/++Pj8="}}


async def save(server: Serving, filename: str, artifact: Any = PNG, at: str = ARTIFACTS, **more: Any) -> dict[str, Any]:
    reply = await server.client.post(at, json={"filename": filename, "artifact": artifact, **more})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_versions_count_from_zero(server: Serving) -> None:
    first = await save(server, "a.png")
    second = await save(server, "a.png", {"text": "hello"}, customMetadata={"k": None})
    assert first.pop("createTime") <= second.pop("createTime")
    uri = "memory://apps/echo/users/ann/sessions/s-7/artifacts/a.png/versions/"
    assert first == {"version": 0, "canonicalUri": uri + "0", "customMetadata": {}, "mimeType": "image/png"}
    assert second == {
        "version": 1, "canonicalUri": uri + "1", "customMetadata": {"k": None}, "mimeType": "text/plain",
    }  # fmt: skip
    get = server.client.get
    assert (await get(f"{ARTIFACTS}/a.png/versions")).json() == [0, 1]
    assert (await get(f"{ARTIFACTS}/a.png")).json() == {"text": "hello"}
    assert (await get(f"{ARTIFACTS}/a.png?version=0")).json() == PNG
    assert (await get(f"{ARTIFACTS}/a.png/versions/0")).json() == PNG
    assert (await get(f"{ARTIFACTS}/a.png/versions/latest")).json() == {"text": "hello"}
    metadata = (await get(f"{ARTIFACTS}/a.png/versions/metadata")).json()
    assert [found["version"] for found in metadata] == [0, 1]
    assert (await get(f"{ARTIFACTS}/a.png/versions/1/metadata")).json() == metadata[1]
    assert (await get(f"{ARTIFACTS}/a.png/versions/latest/metadata")).json() == metadata[1]


async def test_bytes_come_back_in_standard_base64_however_they_came(server: Serving) -> None:
    for data in ("+/++Pj8=", "-_--Pj8=", "-_--Pj8"):
        await save(server, "b", {"inline_data": {"mime_type": "image/png", "data": data}})
        assert (await server.client.get(f"{ARTIFACTS}/b")).json() == PNG


async def test_a_file_reference_is_kept_as_it_is(server: Serving) -> None:
    reference = {"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf"}}
    assert (await save(server, "ref", reference))["mimeType"] == "application/pdf"
    assert (await server.client.get(f"{ARTIFACTS}/ref")).json() == reference


@pytest.mark.parametrize(
    "name", ["dir/sub/a.png", "user:shared/x", "å ∂.txt", "a%b", "versions", "versions/x", "a+b c"]
)
async def test_names_may_hold_slashes_raw_or_encoded(server: Serving, name: str) -> None:
    await save(server, name)
    for spelled in (quote(name, safe="/:"), quote(name, safe="")):
        if spelled == "versions/x":  # raw, this is version "x" of an artifact without a name
            continue
        assert (await server.client.get(f"{ARTIFACTS}/{spelled}")).json() == PNG
        assert (await server.client.get(f"{ARTIFACTS}/{spelled}/versions")).json() == [0]
        assert (await server.client.get(f"{ARTIFACTS}/{spelled}/versions/0")).json() == PNG
        assert (await server.client.get(f"{ARTIFACTS}/{spelled}/versions/latest/metadata")).json()["version"] == 0
    assert (await server.client.get(ARTIFACTS)).json() == [name]


async def test_a_suffix_of_versions_is_not_part_of_a_name_unless_encoded(server: Serving) -> None:
    await save(server, "a")
    await save(server, "a/versions", {"text": "odd"})
    assert (await server.client.get(f"{ARTIFACTS}/a/versions")).json() == [0]
    assert (await server.client.get(f"{ARTIFACTS}/a%2Fversions")).json() == {"text": "odd"}
    assert (await server.client.delete(f"{ARTIFACTS}/a%2Fversions")).status_code == 200
    assert (await server.client.get(ARTIFACTS)).json() == ["a"]


async def test_user_names_are_seen_from_all_sessions_of_the_user(server: Serving) -> None:
    await save(server, "user:note", {"text": "mine"})
    await save(server, "b")
    await save(server, "a")
    other = "/apps/echo/users/ann/sessions/another/artifacts"
    assert (await server.client.get(ARTIFACTS)).json() == ["a", "b", "user:note"]
    assert (await server.client.get(other)).json() == ["user:note"]
    assert (await server.client.get(f"{other}/user:note")).json() == {"text": "mine"}
    assert (await server.client.get("/apps/echo/users/bob/sessions/s-7/artifacts")).json() == []


async def test_delete_takes_all_versions_and_answers_null_each_time(server: Serving) -> None:
    await save(server, "a/b")
    await save(server, "a/b")
    for _ in range(2):
        reply = await server.client.delete(f"{ARTIFACTS}/a/b")
        assert (reply.status_code, reply.json()) == (200, None)
    assert (await server.client.get(ARTIFACTS)).json() == []
    assert (await server.client.get(f"{ARTIFACTS}/a/b")).status_code == 404


async def test_what_is_not_there(server: Serving) -> None:
    await save(server, "a")
    get = server.client.get
    for path in ("nope", "nope/versions/0", "nope/versions/latest", "a/versions/7", "nope/versions/0/metadata"):
        reply = await get(f"{ARTIFACTS}/{path}")
        assert (reply.status_code, reply.json()["code"]) == (404, "ArtifactNotFound"), path
        assert reply.json()["detail"].startswith("Artifact not found")
    assert (await get(f"{ARTIFACTS}/a?version=7")).status_code == 404
    assert (await get(f"{ARTIFACTS}/nope/versions")).json() == []
    assert (await get(f"{ARTIFACTS}/nope/versions/metadata")).json() == []


@pytest.mark.parametrize("version", ["x", "-1", "1.5", "0x1", "٣", "", "9" * 5000, "latest ", "LATEST"])
async def test_a_version_is_a_number_or_latest(server: Serving, version: str) -> None:
    await save(server, "a")
    spelled = quote(version, safe="")
    if version:
        reply = await server.client.get(f"{ARTIFACTS}/a/versions/{spelled}")
        assert reply.status_code == 422
        if len(version) < 1000:
            assert reply.json()["detail"] == "Invalid version ID"
        assert (await server.client.get(f"{ARTIFACTS}/a/versions/{spelled}/metadata")).status_code == 422
    assert (await server.client.get(f"{ARTIFACTS}/a?version={spelled}")).status_code == 422


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"filename": "a", "artifact": {}}, 400),
        ({"filename": "a", "artifact": {"functionCall": {"name": "f"}}}, 400),
        ({"filename": "a", "artifact": {"inlineData": {"mimeType": "image/png"}}}, 422),
        ({"filename": "a", "artifact": {"inlineData": {"data": "§"}}}, 422),
        ({"filename": "a"}, 422),
        ({"artifact": PNG}, 422),
        ({"filename": 5, "artifact": PNG}, 422),
        ({"filename": "", "artifact": PNG}, 422),
        ({"filename": "../../etc/passwd", "artifact": PNG}, 422),
        ({"filename": "a/../b", "artifact": PNG}, 422),
        ({"filename": "a\x00b", "artifact": PNG}, 422),
        ({"filename": "x" * 10_000, "artifact": PNG}, 422),
    ],
)
async def test_what_cannot_be_saved(server: Serving, body: dict[str, Any], status: int) -> None:
    reply = await server.client.post(ARTIFACTS, json=body)
    assert reply.status_code == status, reply.text
    assert (await server.client.get(ARTIFACTS)).json() == []


async def test_an_unsupported_part_is_named_as_adk_does(server: Serving) -> None:
    reply = await server.client.post(ARTIFACTS, json={"filename": "a", "artifact": {"thought": True}})
    assert reply.json()["detail"] == "Not supported artifact type."


async def test_a_large_artifact_comes_back_whole(server: Serving) -> None:
    import base64
    import random

    data = base64.b64encode(random.Random(1).randbytes(8_000_000)).decode()
    part = {"inlineData": {"mimeType": "application/octet-stream", "data": data}}
    await save(server, "large", part)
    assert (await server.client.get(f"{ARTIFACTS}/large")).json() == part


async def test_bytes_go_up_and_down_as_they_are(server: Serving) -> None:
    data = bytes(range(256)) * 40_000
    put = await server.client.put(f"{ARTIFACTS}/a/ü.bin", content=data, headers={"content-type": "video/mp4"})
    assert (put.status_code, put.json()["version"], put.json()["mimeType"]) == (200, 0, "video/mp4")
    await save(server, "a/ü.bin", {"text": "h\u00e9"})
    got = await server.client.get(f"{ARTIFACTS}/a/ü.bin/versions/0/content")
    assert got.content == data
    assert got.headers["content-type"] == "video/mp4"
    newest = await server.client.get(f"{ARTIFACTS}/a/ü.bin/versions/latest/content")
    assert (newest.content, newest.headers["content-length"]) == ("h\u00e9".encode(), "3")
    assert (await server.client.get(f"{ARTIFACTS}/a/ü.bin/versions/7/content")).status_code == 404


async def test_what_was_uploaded_is_no_page_of_the_server(server: Serving) -> None:
    page = b"<script>alert(1)</script>"
    await server.client.put(f"{ARTIFACTS}/a.html", content=page, headers={"content-type": "text/html"})
    headers = (await server.client.get(f"{ARTIFACTS}/a.html/versions/0/content")).headers
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''a.html"
    assert headers["content-security-policy"] == "sandbox"
    assert headers["x-content-type-options"] == "nosniff"


async def test_compressed_uploads_and_unknown_apps_are_refused(server: Serving) -> None:
    gzipped = await server.client.put(f"{ARTIFACTS}/a", content=b"x", headers={"content-encoding": "gzip"})
    assert gzipped.status_code == 415
    elsewhere = await server.client.put(ARTIFACTS.replace("echo", "unknown") + "/a", content=b"x")
    assert elsewhere.status_code == 404
