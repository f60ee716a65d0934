"""Handlers of artifacts: save, list, load, delete."""

from __future__ import annotations

from greenroom.errors import ArtifactNotFound, CallerError, InvalidRequest
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Part
from greenroom.records.listings import ArtifactVersion
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

_STORED_KINDS = ("inline_data", "text", "file_data")


class SaveArtifactRequest(Record, kw_only=True):
    """artifact: a part with `inlineData`, `text` or `fileData`."""

    filename: str
    artifact: Part
    custom_metadata: JsonObject | None = None


async def list_artifacts(context: RequestContext) -> AnyReply:
    return Reply(value=await context.artifacts.list_artifact_keys(**context.session_names))


async def save_artifact(context: RequestContext) -> AnyReply:
    context.check_app()
    body: SaveArtifactRequest = context.body
    if all(getattr(body.artifact, kind) is None for kind in _STORED_KINDS):
        raise CallerError("Not supported artifact type.")
    session = context.session_names
    version = await context.artifacts.save_artifact(
        **session, filename=body.filename, artifact=body.artifact, custom_metadata=body.custom_metadata
    )
    saved = await context.artifacts.get_artifact_version(**session, filename=body.filename, version=version)
    if saved is None:  # deleted by another request in between
        raise ArtifactNotFound(body.filename, version)
    return Reply(value=saved)


async def list_versions(context: RequestContext) -> AnyReply:
    return Reply(value=await context.artifacts.list_versions(**_artifact_key(context)))


async def list_version_metadata(context: RequestContext) -> AnyReply:
    key = _artifact_key(context)
    versions = await context.artifacts.list_versions(**key)
    found = [await context.artifacts.get_artifact_version(**key, version=version) for version in versions]
    return Reply(value=[one for one in found if one is not None])


async def load_version(context: RequestContext) -> AnyReply:
    return Reply(value=await _load(context, _version(context)))


async def get_version_metadata(context: RequestContext) -> AnyReply:
    version = _version(context)
    found: ArtifactVersion | None = await context.artifacts.get_artifact_version(
        **_artifact_key(context), version=version
    )
    if found is None:
        raise ArtifactNotFound(context.path["artifact_name"], version)
    return Reply(value=found)


async def load_artifact(context: RequestContext) -> AnyReply:
    return Reply(value=await _load(context, context.query["version"]))


async def delete_artifact(context: RequestContext) -> AnyReply:
    await context.artifacts.delete_artifact(**_artifact_key(context))
    return Reply(value=None)


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


def _artifact_key(context: RequestContext) -> dict[str, str]:
    return {**context.session_names, "filename": context.path["artifact_name"]}
