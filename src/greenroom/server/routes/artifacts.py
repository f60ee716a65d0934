"""Artifacts: saved, listed, loaded, deleted."""

from __future__ import annotations

from greenroom.errors import ArtifactNotFound, CallerError, InvalidRequest
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Part
from greenroom.records.listings import ArtifactVersion
from greenroom.server.call import AnyReply, Call, Reply

_STORED_KINDS = ("inline_data", "text", "file_data")


class SaveArtifactRequest(Record, kw_only=True):
    """artifact: a part with `inlineData`, `text` or `fileData`."""

    filename: str
    artifact: Part
    custom_metadata: JsonObject | None = None


async def list_artifacts(call: Call) -> AnyReply:
    found = await call.artifacts.list_artifact_keys(**_owner(call))
    return Reply(value=found)


async def save_artifact(call: Call) -> AnyReply:
    call.check_app()
    body: SaveArtifactRequest = call.body
    if all(getattr(body.artifact, kind) is None for kind in _STORED_KINDS):
        raise CallerError("Not supported artifact type.")
    place = _owner(call)
    version = await call.artifacts.save_artifact(
        **place, filename=body.filename, artifact=body.artifact, custom_metadata=body.custom_metadata
    )
    saved = await call.artifacts.get_artifact_version(**place, filename=body.filename, version=version)
    if saved is None:  # deleted by another request in between
        raise ArtifactNotFound(body.filename, version)
    return Reply(value=saved)


async def list_versions(call: Call) -> AnyReply:
    return Reply(value=await call.artifacts.list_versions(**_place(call)))


async def list_version_metadata(call: Call) -> AnyReply:
    place = _place(call)
    versions = await call.artifacts.list_versions(**place)
    found = [await call.artifacts.get_artifact_version(**place, version=version) for version in versions]
    return Reply(value=[known for known in found if known is not None])


async def load_version(call: Call) -> AnyReply:
    return Reply(value=await _load(call, _version(call)))


async def get_version_metadata(call: Call) -> AnyReply:
    version = _version(call)
    found: ArtifactVersion | None = await call.artifacts.get_artifact_version(**_place(call), version=version)
    if found is None:
        raise ArtifactNotFound(call.path["artifact_name"], version)
    return Reply(value=found)


async def load_artifact(call: Call) -> AnyReply:
    return Reply(value=await _load(call, call.query["version"]))


async def delete_artifact(call: Call) -> AnyReply:
    await call.artifacts.delete_artifact(**_place(call))
    return Reply(value=None)


async def _load(call: Call, version: int | None) -> Part:
    part = await call.artifacts.load_artifact(**_place(call), version=version)
    if part is None:
        raise ArtifactNotFound(call.path["artifact_name"], version)
    return part


def _version(call: Call) -> int | None:
    """The version in the path; None for `latest`."""
    text = call.path["version"]
    if text == "latest":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidRequest("Invalid version ID", location=("path", "version"))
    return int(text)


def _owner(call: Call) -> dict[str, str]:
    return {name: call.path[name] for name in ("app_name", "user_id", "session_id")}


def _place(call: Call) -> dict[str, str]:
    return {**_owner(call), "filename": call.path["artifact_name"]}
