"""The toolset of Spanner's instances and databases.

Source: `projects.instances`, `projects.instanceConfigs` and `projects.instances.databases` of the Spanner API's
reference, v1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject
from greenroom.tools.google_cloud.credentials_config import Credentials
from greenroom.tools.google_cloud.google_tool import GoogleTool, success
from greenroom.tools.google_cloud.rest_api import GoogleRestApi, object_in, objects_in, path_of
from greenroom.tools.google_cloud.spanner.config import SpannerCredentialsConfig, SpannerToolSettings
from greenroom.tools.google_cloud.spanner.toolset import DEFAULT_SPANNER_TOOL_NAME_PREFIX, SPANNER_URL
from greenroom.tools.google_cloud.toolset import GoogleCloudToolset
from greenroom.tools.toolset import ToolPredicate

_DATABASE_ID = re.compile(r"[a-z][a-z0-9_-]{0,28}[a-z0-9]")


class SpannerAdminToolset(GoogleCloudToolset):
    """Lists, describes and creates Spanner's instances and databases.

    credentials_config: without it the machine's own credentials are used. spanner_tool_settings: none concerns these
    tools. base_url: of another endpoint of the API.
    """

    def __init__(
        self,
        *,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        credentials_config: SpannerCredentialsConfig | None = None,
        spanner_tool_settings: SpannerToolSettings | None = None,
        tool_name_prefix: str | None = DEFAULT_SPANNER_TOOL_NAME_PREFIX,
        base_url: str = SPANNER_URL,
    ) -> None:
        api = GoogleRestApi(f"{base_url.rstrip('/')}/v1")
        functions = _AdminFunctions(api)
        creating = [functions.create_database, functions.create_instance]
        reading = [
            functions.list_instances,
            functions.get_instance,
            functions.list_databases,
            functions.list_instance_configs,
            functions.get_instance_config,
        ]
        tools = [GoogleTool(one, credentials_config=credentials_config, on_interrupt="retry") for one in reading]
        tools += [GoogleTool(one, credentials_config=credentials_config) for one in creating]
        super().__init__(tools, [api], tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)


class _AdminFunctions:
    """The functions of the tools. Models see their docstrings."""

    def __init__(self, api: GoogleRestApi) -> None:
        self._api = api

    async def list_instances(self, project_id: str, credentials: Credentials | None) -> JsonObject:
        """Lists the ids of the Spanner instances of a project.

        Args:
            project_id: The Google Cloud project.
        """
        return await self._ids(credentials, path_of("projects", project_id, "instances"), "instances")

    async def get_instance(self, project_id: str, *, instance_id: str, credentials: Credentials | None) -> JsonObject:
        """Describes a Spanner instance: its configuration, its capacity and its labels.

        Args:
            project_id: The Google Cloud project.
            instance_id: The instance.
        """
        found = await self._api.get(credentials, path_of("projects", project_id, "instances", instance_id))
        return success(
            {
                "instance_id": instance_id,
                "display_name": found.get("displayName") or "",
                "config": found.get("config") or "",
                "node_count": found.get("nodeCount") or 0,
                "processing_units": found.get("processingUnits") or 0,
                "labels": object_in(found, "labels"),
            }
        )

    async def list_instance_configs(self, project_id: str, credentials: Credentials | None) -> JsonObject:
        """Lists the ids of the configurations that a project's Spanner instances can have: where their data are kept.

        Args:
            project_id: The Google Cloud project.
        """
        return await self._ids(credentials, path_of("projects", project_id, "instanceConfigs"), "instanceConfigs")

    async def get_instance_config(
        self, project_id: str, *, config_id: str, credentials: Credentials | None
    ) -> JsonObject:
        """Describes a configuration of Spanner instances: its replicas and their locations.

        Args:
            project_id: The Google Cloud project.
            config_id: The configuration, such as regional-us-central1.
        """
        found = await self._api.get(credentials, path_of("projects", project_id, "instanceConfigs", config_id))
        replicas = [
            {
                "location": replica.get("location") or "",
                "type": replica.get("type") or "TYPE_UNSPECIFIED",
                "default_leader_location": bool(replica.get("defaultLeaderLocation")),
            }
            for replica in objects_in(found, "replicas")
        ]
        return success(
            {
                "name": found.get("name") or "",
                "display_name": found.get("displayName") or "",
                "replicas": replicas,
                "labels": object_in(found, "labels"),
            }
        )

    async def create_instance(
        self,
        project_id: str,
        *,
        instance_id: str,
        config_id: str,
        display_name: str,
        credentials: Credentials | None,
        nodes: int = 1,
    ) -> JsonObject:
        """Creates a Spanner instance, which costs money from then on.

        Args:
            project_id: The Google Cloud project.
            instance_id: The id of the new instance.
            config_id: Its configuration, such as regional-us-central1.
            display_name: Its name for people.
            nodes: Its capacity.
        """
        instance: JsonObject = {
            "displayName": display_name,
            "config": f"projects/{project_id}/instanceConfigs/{config_id}",
            "nodeCount": nodes,
        }
        path = path_of("projects", project_id, "instances")
        operation = await self._api.post(credentials, path, {"instanceId": instance_id, "instance": instance})
        await self._api.finish(credentials, operation)
        return success(f"Created instance {instance_id}")

    async def list_databases(self, project_id: str, *, instance_id: str, credentials: Credentials | None) -> JsonObject:
        """Lists the ids of the databases of a Spanner instance.

        Args:
            project_id: The Google Cloud project.
            instance_id: The instance.
        """
        path = path_of("projects", project_id, "instances", instance_id, "databases")
        return await self._ids(credentials, path, "databases")

    async def create_database(
        self, project_id: str, *, instance_id: str, database_id: str, credentials: Credentials | None
    ) -> JsonObject:
        """Creates an empty database in a Spanner instance.

        Args:
            project_id: The Google Cloud project.
            instance_id: The instance.
            database_id: The id of the new database: 2 to 30 lower-case letters, digits, _ and -, the first a letter.
        """
        if not _DATABASE_ID.fullmatch(database_id):
            raise ToolError(
                f"{database_id!r} is no id of a database: it has 2 to 30 lower-case letters, digits, _ and -, begins "
                "with a letter and ends with a letter or digit"
            )
        path = path_of("projects", project_id, "instances", instance_id, "databases")
        operation = await self._api.post(credentials, path, {"createStatement": f"CREATE DATABASE `{database_id}`"})
        await self._api.finish(credentials, operation)
        return {"status": "SUCCESS"}

    async def _ids(self, credentials: Credentials | None, path: str, key: str) -> JsonObject:
        found = self._api.pages(credentials, path, key)
        return success([str(item["name"]).rpartition("/")[2] async for item in found])
