"""Tools for Cloud Storage: objects, and buckets.

Source: `buckets` and `objects` of the Cloud Storage JSON API's reference, v1.
"""

from __future__ import annotations

import asyncio
import base64
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject
from greenroom.tools.google_cloud.capabilities import Capabilities
from greenroom.tools.google_cloud.credentials_config import BaseGoogleCredentialsConfig, Credentials
from greenroom.tools.google_cloud.google_tool import GoogleTool, success
from greenroom.tools.google_cloud.rest_api import GoogleRestApi, objects_in, path_of
from greenroom.tools.google_cloud.toolset import GoogleCloudToolset
from greenroom.tools.toolset import ToolPredicate
from greenroom.tools.web.http_client import MAX_REPLY_BYTES

DEFAULT_GCS_TOOL_NAME_PREFIX = "gcs"


@dataclass(kw_only=True)
class GCSCredentialsConfig(BaseGoogleCredentialsConfig):
    """The credentials of Cloud Storage's tools."""

    default_scopes: ClassVar[tuple[str, ...]] = ("https://www.googleapis.com/auth/devstorage.full_control",)


@dataclass(kw_only=True)
class GCSToolSettings:
    """Settings of Cloud Storage's tools."""

    capabilities: Sequence[Capabilities] = (Capabilities.READ_ONLY,)
    local_file_root: str | None = None
    """The folder for uploads and downloads of files; without it there are none, since their paths come from a model."""

    @property
    def can_write(self) -> bool:
        return Capabilities.READ_WRITE in self.capabilities


_Functions = list[Callable[..., Any]]


class _StorageToolset(GoogleCloudToolset):
    """credentials_config: without it the machine's own credentials are used. base_url: of another endpoint."""

    def __init__(
        self,
        *,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        credentials_config: GCSCredentialsConfig | None = None,
        gcs_tool_settings: GCSToolSettings | None = None,
        tool_name_prefix: str | None = DEFAULT_GCS_TOOL_NAME_PREFIX,
        base_url: str = "https://storage.googleapis.com",
    ) -> None:
        api = GoogleRestApi(base_url)
        settings = gcs_tool_settings or GCSToolSettings()
        reading, writing = self._functions(api, settings)
        tools: list[GoogleTool] = []
        if settings.capabilities:
            tools += [GoogleTool(one, credentials_config=credentials_config, on_interrupt="retry") for one in reading]
        if settings.can_write:
            tools += [GoogleTool(one, credentials_config=credentials_config) for one in writing]
        super().__init__(tools, [api], tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)

    @abstractmethod
    def _functions(self, api: GoogleRestApi, settings: GCSToolSettings) -> tuple[_Functions, _Functions]:
        """Those that read, and those that write."""


class GCSToolset(_StorageToolset):
    """Lists, reads, writes and deletes objects of Cloud Storage. Only settings that allow it make tools that write."""

    def _functions(self, api: GoogleRestApi, settings: GCSToolSettings) -> tuple[_Functions, _Functions]:
        objects = _Objects(api, settings)
        return (
            [objects.get_object_data, objects.get_object_metadata, objects.list_objects],
            [objects.create_object, objects.delete_objects],
        )


class GCSAdminToolset(_StorageToolset):
    """Lists, reads, creates, changes and deletes buckets. Only settings that allow it make tools that write."""

    def _functions(self, api: GoogleRestApi, settings: GCSToolSettings) -> tuple[_Functions, _Functions]:
        buckets = _Buckets(api)
        return (
            [buckets.get_bucket, buckets.list_buckets],
            [buckets.create_bucket, buckets.update_bucket, buckets.delete_bucket],
        )


class _Objects:
    """The functions of the tools for objects. Models see their docstrings."""

    def __init__(self, api: GoogleRestApi, settings: GCSToolSettings) -> None:
        self._api = api
        self._settings = settings

    async def list_objects(
        self,
        *,
        bucket_name: str,
        credentials: Credentials | None,
        prefix: str | None = None,
        page_size: int | None = None,
        page_token: str | None = None,
    ) -> JsonObject:
        """Lists the names of the objects in a Cloud Storage bucket.

        Args:
            bucket_name: The bucket.
            prefix: Only objects whose names begin with it.
            page_size: How many names to return at most; without it all are returned.
            page_token: The next_page_token of the previous page.
        """
        path = f"{_bucket(bucket_name)}/o"
        return await _names(self._api, credentials, path, {"prefix": prefix}, page_size, page_token)

    async def get_object_metadata(
        self, *, bucket_name: str, object_name: str, credentials: Credentials | None, generation: int | None = None
    ) -> JsonObject:
        """Returns the metadata of an object in Cloud Storage, such as its size, media type and times.

        Args:
            bucket_name: The bucket.
            object_name: The object.
            generation: The version of the object; the newest by default.
        """
        path = _object(bucket_name, object_name)
        return success(await self._api.get(credentials, path, {"generation": generation}))

    async def get_object_data(
        self,
        *,
        bucket_name: str,
        object_name: str,
        credentials: Credentials | None,
        generation: int | None = None,
        destination_file_path: str | None = None,
    ) -> JsonObject:
        """Returns the content of an object in Cloud Storage as text, or as base64 if it is no text.

        Args:
            bucket_name: The bucket.
            object_name: The object.
            generation: The version of the object; the newest by default.
            destination_file_path: Saves the content in this file instead.
        """
        target = self._local_path(destination_file_path) if destination_file_path is not None else None
        query = {"alt": "media", "generation": generation}
        reply = await self._api.send("GET", credentials, _object(bucket_name, object_name), query)
        if target is not None:
            await asyncio.to_thread(_save, target, reply.body)
            return success(f"Saved {object_name} as {destination_file_path}")
        try:
            return {**success(reply.body.decode()), "encoding": "text"}
        except UnicodeDecodeError:
            return {**success(base64.b64encode(reply.body).decode()), "encoding": "base64"}

    async def create_object(
        self,
        *,
        bucket_name: str,
        object_name: str,
        credentials: Credentials | None,
        data: str | None = None,
        source_file_path: str | None = None,
    ) -> JsonObject:
        """Writes an object to Cloud Storage. An object of that name is replaced.

        Args:
            bucket_name: The bucket.
            object_name: The object.
            data: The content.
            source_file_path: The file with the content, in place of data.
        """
        if source_file_path is not None:
            content = await asyncio.to_thread(_load, self._local_path(source_file_path))
        elif data is not None:
            content = data.encode()
        else:
            raise ToolError("Give data or source_file_path")
        query = {"uploadType": "media", "name": object_name}
        media_type = "application/octet-stream" if data is None else "text/plain"
        path = f"upload/{_bucket(bucket_name)}/o"
        await self._api.send("POST", credentials, path, query, content, media_type=media_type)
        return success(f"Created {object_name} in {bucket_name}")

    async def delete_objects(
        self, *, bucket_name: str, object_names: list[str], credentials: Credentials | None
    ) -> JsonObject:
        """Deletes objects of a Cloud Storage bucket.

        Args:
            bucket_name: The bucket.
            object_names: The objects.
        """
        for name in object_names:
            await self._api.call("DELETE", credentials, _object(bucket_name, name))
        return success(f"Deleted {', '.join(object_names)} of {bucket_name}")

    def _local_path(self, path: str) -> Path:
        """A file in the folder of the settings. Raises ToolError for any other."""
        if not self._settings.local_file_root:
            raise ToolError("Files can't be read or written: local_file_root is not set")
        root = Path(self._settings.local_file_root).resolve()
        found = (root / path).resolve()
        if found == root or not found.is_relative_to(root):
            raise ToolError(f"{path!r} is not a file in the allowed folder")
        return found


class _Buckets:
    """The functions of the tools for buckets. Models see their docstrings."""

    def __init__(self, api: GoogleRestApi) -> None:
        self._api = api

    async def get_bucket(self, *, bucket_name: str, credentials: Credentials | None) -> JsonObject:
        """Returns the metadata of a Cloud Storage bucket, such as its location and storage class.

        Args:
            bucket_name: The bucket.
        """
        return success(await self._api.get(credentials, _bucket(bucket_name)))

    async def list_buckets(
        self,
        *,
        project_id: str,
        credentials: Credentials | None,
        page_size: int | None = None,
        page_token: str | None = None,
    ) -> JsonObject:
        """Lists the names of the Cloud Storage buckets of a project.

        Args:
            project_id: The Google Cloud project.
            page_size: How many names to return at most; without it all are returned.
            page_token: The next_page_token of the previous page.
        """
        return await _names(self._api, credentials, "storage/v1/b", {"project": project_id}, page_size, page_token)

    async def create_bucket(
        self, *, project_id: str, bucket_name: str, credentials: Credentials | None, location: str | None = None
    ) -> JsonObject:
        """Creates a Cloud Storage bucket.

        Args:
            project_id: The Google Cloud project.
            bucket_name: The bucket; names are unique in all of Cloud Storage.
            location: Where the data are kept, such as EU or us-central1.
        """
        body: JsonObject = {"name": bucket_name}
        if location:
            body["location"] = location
        await self._api.post(credentials, "storage/v1/b", body, {"project": project_id})
        return success(f"Created bucket {bucket_name}")

    async def update_bucket(
        self,
        *,
        bucket_name: str,
        credentials: Credentials | None,
        versioning_enabled: bool | None = None,
        uniform_bucket_level_access_enabled: bool | None = None,
    ) -> JsonObject:
        """Changes settings of a Cloud Storage bucket.

        Args:
            bucket_name: The bucket.
            versioning_enabled: Whether older versions of objects are kept.
            uniform_bucket_level_access_enabled: Whether access is granted for the bucket only, not for single objects.
        """
        body: JsonObject = {}
        if versioning_enabled is not None:
            body["versioning"] = {"enabled": versioning_enabled}
        if uniform_bucket_level_access_enabled is not None:
            access = {"enabled": uniform_bucket_level_access_enabled}
            body["iamConfiguration"] = {"uniformBucketLevelAccess": access}
        await self._api.call("PATCH", credentials, _bucket(bucket_name), body=body)
        return success(f"Changed bucket {bucket_name}")

    async def delete_bucket(self, *, bucket_name: str, credentials: Credentials | None) -> JsonObject:
        """Deletes a Cloud Storage bucket, which must be empty.

        Args:
            bucket_name: The bucket.
        """
        await self._api.call("DELETE", credentials, _bucket(bucket_name))
        return success(f"Deleted bucket {bucket_name}")


async def _names(
    api: GoogleRestApi,
    credentials: Credentials | None,
    path: str,
    query: dict[str, str | None],
    page_size: int | None,
    page_token: str | None,
) -> JsonObject:
    """The names of a page, or of all pages without page_size."""
    if page_size is None and page_token is None:
        return success([item["name"] async for item in api.pages(credentials, path, "items", query)])
    page = await api.get(credentials, path, {**query, "maxResults": page_size, "pageToken": page_token})
    result = success([item["name"] for item in objects_in(page, "items")])
    if page.get("nextPageToken"):
        result["next_page_token"] = page["nextPageToken"]
    return result


def _bucket(name: str) -> str:
    return f"storage/v1/b/{path_of(name)}"


def _object(bucket: str, name: str) -> str:
    return f"{_bucket(bucket)}/o/{path_of(name)}"


def _save(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _load(path: Path) -> bytes:
    if path.stat().st_size > MAX_REPLY_BYTES:
        raise ToolError(f"{path.name!r} is larger than {MAX_REPLY_BYTES} bytes")
    return path.read_bytes()
