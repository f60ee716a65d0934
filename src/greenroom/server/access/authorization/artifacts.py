"""Artifacts, limited to the caller's permissions."""

from __future__ import annotations

from greenroom.artifacts.service import BaseArtifactService
from greenroom.server.access.authorization.authorized import Authorized, reading, writing


class AuthorizedArtifacts(Authorized[BaseArtifactService]):
    __slots__ = ()

    save_artifact = writing(BaseArtifactService.save_artifact, "artifact.changed")
    load_artifact = reading(BaseArtifactService.load_artifact)
    list_artifact_keys = reading(BaseArtifactService.list_artifact_keys)
    list_versions = reading(BaseArtifactService.list_versions)
    list_artifact_versions = reading(BaseArtifactService.list_artifact_versions)
    get_artifact_version = reading(BaseArtifactService.get_artifact_version)
    delete_artifact = writing(BaseArtifactService.delete_artifact, "artifact.deleted")
    upload_artifact = writing(BaseArtifactService.upload_artifact, "artifact.changed")
    download_artifact = reading(BaseArtifactService.download_artifact)
