"""Against a small server that speaks Cloud Storage's JSON API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.oauth2.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]
from starlette.responses import JSONResponse, Response

from greenroom import Capabilities, GCSAdminToolset, GCSCredentialsConfig, GCSToolset, GCSToolSettings
from tests.tools.google_api.server import GoogleServer, Json, Seen, refusal
from tests.tools.google_cloud.declarations import BY_ADK, declared_parameters
from tests.tools.one_call import call_once, offered

ALL = GCSToolSettings(capabilities=[Capabilities.READ_WRITE])
BUCKET = "/storage/v1/b/b-1"
OBJECT = f"{BUCKET}/o/in%2Fa.txt"
NAMED: Json = {"bucket_name": "b-1", "object_name": "in/a.txt"}


async def ask(
    google: GoogleServer,
    name: str,
    args: Json,
    settings: GCSToolSettings = ALL,
    kind: type[GCSToolset] | type[GCSAdminToolset] = GCSToolset,
) -> Json:
    config = GCSCredentialsConfig(credentials=Credentials(token="t-1"))
    toolset = kind(credentials_config=config, gcs_tool_settings=settings, base_url=google.url)
    return (await call_once(toolset, f"gcs_{name}", args)).response


async def ask_admin(google: GoogleServer, name: str, args: Json) -> Json:
    return await ask(google, name, args, kind=GCSAdminToolset)


@pytest.mark.parametrize("kind", [GCSToolset, GCSAdminToolset])
async def test_the_tools_are_declared_as_in_adk(kind: type[GCSToolset] | type[GCSAdminToolset]) -> None:
    assert await declared_parameters(kind(gcs_tool_settings=ALL)) == BY_ADK[kind.__name__]


async def test_without_settings_nothing_can_be_written() -> None:
    assert list(await offered(GCSToolset())) == ["gcs_get_object_data", "gcs_get_object_metadata", "gcs_list_objects"]
    assert list(await offered(GCSAdminToolset())) == ["gcs_get_bucket", "gcs_list_buckets"]


async def test_objects_are_listed_by_pages_or_all(google: GoogleServer) -> None:
    def page(seen: Seen) -> Response:
        has_more = "pageToken" not in dict(seen.query)
        item = {"name": "in/a" if has_more else "in/b"}
        return JSONResponse({"items": [item], **({"nextPageToken": "next"} if has_more else {})})

    google.answers[f"GET {BUCKET}/o"] = page
    args = {"bucket_name": "b-1", "prefix": "in/"}
    assert (await ask(google, "list_objects", args))["results"] == ["in/a", "in/b"]
    assert google.last.query == [("prefix", "in/"), ("pageToken", "next")]
    first = await ask(google, "list_objects", {**args, "page_size": 1})
    assert first == {"status": "SUCCESS", "results": ["in/a"], "next_page_token": "next"}
    second = await ask(google, "list_objects", {**args, "page_size": 1, "page_token": "next"})
    assert second == {"status": "SUCCESS", "results": ["in/b"]}


async def test_contents_are_text_or_base64(google: GoogleServer) -> None:
    google.answers[f"GET {OBJECT}"] = Response("Grüße".encode())
    assert await ask(google, "get_object_data", {**NAMED, "generation": 7}) == {
        "status": "SUCCESS",
        "results": "Grüße",
        "encoding": "text",
    }
    assert google.last.query == [("alt", "media"), ("generation", "7")]
    google.answers[f"GET {OBJECT}"] = Response(b"\xff\xfe")
    assert (await ask(google, "get_object_data", NAMED))["encoding"] == "base64"
    google.answers[f"GET {OBJECT}"] = {"name": "in/a.txt", "size": "3"}
    assert (await ask(google, "get_object_metadata", NAMED))["results"] == {"name": "in/a.txt", "size": "3"}


async def test_objects_are_written_and_deleted(google: GoogleServer) -> None:
    google.answers["POST /upload/storage/v1/b/b-1/o"] = {"name": "in/a.txt"}
    google.answers[f"DELETE {OBJECT}"] = Response(status_code=204)
    assert (await ask(google, "create_object", {**NAMED, "data": "hello"}))["status"] == "SUCCESS"
    assert google.last.query == [("uploadType", "media"), ("name", "in/a.txt")]
    assert (google.last.raw_body, google.last.headers["content-type"]) == (b"hello", "text/plain")
    assert "Give data" in (await ask(google, "create_object", NAMED))["error_details"]
    deleted = await ask(google, "delete_objects", {"bucket_name": "b-1", "object_names": ["in/a.txt"]})
    assert deleted["status"] == "SUCCESS"
    assert google.last.call == f"DELETE {OBJECT}"


async def test_files_are_those_of_one_folder(google: GoogleServer, tmp_path: Path) -> None:
    google.answers[f"GET {OBJECT}"] = Response(b"content")
    google.answers["POST /upload/storage/v1/b/b-1/o"] = {}
    root = tmp_path / "files"
    root.mkdir()
    (tmp_path / "secret").write_text("hush")
    (root / "link").symlink_to(tmp_path / "secret")
    settings = GCSToolSettings(capabilities=[Capabilities.READ_WRITE], local_file_root=str(root))

    saved = await ask(google, "get_object_data", {**NAMED, "destination_file_path": "new/a.txt"}, settings)
    assert saved["status"] == "SUCCESS"
    assert (root / "new" / "a.txt").read_bytes() == b"content"
    await ask(google, "create_object", {**NAMED, "source_file_path": "new/a.txt"}, settings)
    assert google.last.raw_body == b"content"
    google.seen.clear()

    for path in ("../secret", str(tmp_path / "secret"), "link", ".", ""):
        refused = await ask(google, "create_object", {**NAMED, "source_file_path": path}, settings)
        assert "allowed folder" in refused["error_details"], path
    refused = await ask(google, "create_object", {**NAMED, "source_file_path": "new/a.txt"})
    assert "local_file_root" in refused["error_details"]
    assert google.seen == []


async def test_buckets_are_managed(google: GoogleServer) -> None:
    google.answers[f"GET {BUCKET}"] = {"name": "b-1"}
    google.answers["GET /storage/v1/b"] = {"items": [{"name": "b-1"}]}
    google.answers["POST /storage/v1/b"] = {}
    google.answers[f"PATCH {BUCKET}"] = {}
    google.answers[f"DELETE {BUCKET}"] = Response(status_code=204)

    named = {"bucket_name": "b-1"}
    assert (await ask_admin(google, "get_bucket", named))["results"] == {"name": "b-1"}
    assert (await ask_admin(google, "list_buckets", {"project_id": "p-1"}))["results"] == ["b-1"]
    await ask_admin(google, "create_bucket", {**named, "project_id": "p-1", "location": "EU"})
    assert (google.last.body, google.last.query) == ({"name": "b-1", "location": "EU"}, [("project", "p-1")])
    await ask_admin(
        google,
        "update_bucket",
        {**named, "versioning_enabled": True, "uniform_bucket_level_access_enabled": False},
    )
    assert google.last.body == {
        "versioning": {"enabled": True},
        "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": False}},
    }
    assert (await ask_admin(google, "delete_bucket", named))["status"] == "SUCCESS"


async def test_a_refusal_is_a_result_for_the_model(google: GoogleServer) -> None:
    google.answers[f"GET {OBJECT}"] = refusal(403, "forbidden", "bot does not have storage.objects.get access")
    refused: Any = await ask(google, "get_object_data", NAMED)
    assert refused == {
        "status": "ERROR",
        "error_details": "403 forbidden: bot does not have storage.objects.get access",
    }
