"""Handlers of artifacts: save, list, load, delete."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from urllib.parse import quote

from greenroom.errors import ArtifactNotFound, CallerError, InvalidRequest, TooLarge
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Part
from greenroom.server.replies import AnyReply, Reply, StreamReply
from greenroom.server.request_body import check_is_plain, read_chunks
from greenroom.server.request_context import RequestContext

_STORED_KINDS = ("inline_data", "text", "file_data")


class SaveArtifactRequest(Record, kw_only=True):
    """A version to save."""

    filename: str
    """The artifact's name; the prefix `user:` shares it among the user's sessions."""
    artifact: Part
    """A part with `inlineData`, `text` or `fileData`."""
    custom_metadata: JsonObject | None = None
    """Stored with the version."""


async def list_artifacts(context: RequestContext) -> AnyReply:
    return Reply(value=await context.artifacts.list_artifact_keys(**context.session_names))


async def save_artifact(context: RequestContext) -> AnyReply:
    await context.check_app()
    body: SaveArtifactRequest = context.body
    if all(getattr(body.artifact, kind) is None for kind in _STORED_KINDS):
        raise CallerError("Not supported artifact type.")
    key = {**context.session_names, "filename": body.filename}
    version = await context.artifacts.save_artifact(**key, artifact=body.artifact, custom_metadata=body.custom_metadata)
    return await _metadata(context, key, version)


async def upload_artifact(context: RequestContext) -> AnyReply:
    await context.check_app()
    check_is_plain(context.headers)
    announced = context.headers.get("content-length", "")
    limit = context.settings.limits.artifact_bytes
    if announced.isdigit() and int(announced) > limit:
        raise TooLarge("The artifact", limit_bytes=limit)

    mime_type = context.headers.get("content-type", "application/octet-stream")
    key = _artifact_key(context)
    chunks = read_chunks(context.receive)
    version = await context.artifacts.upload_artifact(**key, chunks=chunks, mime_type=mime_type)
    return await _metadata(context, key, version)


async def download_version(context: RequestContext) -> AnyReply:
    version = _version(context)
    content = await context.artifacts.download_artifact(**_artifact_key(context), version=version)
    if content is None:
        raise ArtifactNotFound(context.path["artifact_name"], version)

    name = quote(context.path["artifact_name"].rpartition("/")[2], safe="")

    async def pieces() -> AsyncGenerator[bytes]:
        async for chunk in content.chunks:
            yield chunk

    return StreamReply(
        pieces=pieces(),
        close=lambda: None,
        media_type=content.version.mime_type or "application/octet-stream",
        # Uploaded files must not run as pages of this server.
        headers={
            "content-length": str(content.size),
            "content-disposition": f"attachment; filename*=UTF-8''{name}",
            "content-security-policy": "sandbox",
            "x-content-type-options": "nosniff",
        },
    )


async def list_versions(context: RequestContext) -> AnyReply:
    return Reply(value=await context.artifacts.list_versions(**_artifact_key(context)))


async def list_version_metadata(context: RequestContext) -> AnyReply:
    return Reply(value=await context.artifacts.list_artifact_versions(**_artifact_key(context)))


async def load_version(context: RequestContext) -> AnyReply:
    return Reply(value=await _load(context, _version(context)))


async def get_version_metadata(context: RequestContext) -> AnyReply:
    return await _metadata(context, _artifact_key(context), _version(context))


async def load_artifact(context: RequestContext) -> AnyReply:
    return Reply(value=await _load(context, context.query["version"]))


async def delete_artifact(context: RequestContext) -> None:
    await context.artifacts.delete_artifact(**_artifact_key(context))


async def _metadata(context: RequestContext, key: JsonObject, version: int | None) -> AnyReply:
    metadata = await context.artifacts.get_artifact_version(**key, version=version)
    if metadata is None:  # also when another request has deleted it since it was saved
        raise ArtifactNotFound(key["filename"], version)
    return Reply(value=metadata)


async def _load(context: RequestContext, version: int | None) -> Part:
    part = await context.artifacts.load_artifact(**_artifact_key(context), version=version)
    if part is None:
        raise ArtifactNotFound(context.path["artifact_name"], version)
    return part


def _version(context: RequestContext) -> int | None:
    """The version in the path; None for `latest`."""
    text = context.path["version"]
    if text == "latest":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidRequest("Invalid version ID", location=("path", "version"))
    return int(text)


def _artifact_key(context: RequestContext) -> JsonObject:
    return {**context.session_names, "filename": context.path["artifact_name"]}
