"""The toolset of Bigtable.

Source: `projects.instances`, their `clusters` and their `tables` of the Bigtable Admin API's reference, v2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from greenroom.records.base import JsonObject
from greenroom.tools.google_cloud.bigtable.config import BigtableCredentialsConfig, BigtableToolSettings
from greenroom.tools.google_cloud.bigtable.queries import execute_query
from greenroom.tools.google_cloud.credentials_config import Credentials
from greenroom.tools.google_cloud.google_tool import GoogleTool, success
from greenroom.tools.google_cloud.rest_api import GoogleRestApi, object_in, path_of
from greenroom.tools.google_cloud.toolset import GoogleCloudToolset
from greenroom.tools.toolset import ToolPredicate

DEFAULT_BIGTABLE_TOOL_NAME_PREFIX = "bigtable"


class BigtableToolset(GoogleCloudToolset):
    """Describes Bigtable's instances, clusters and tables, and queries tables. Nothing can be written.

    credentials_config: without it the machine's own credentials are used. base_url, admin_url: of other endpoints of
    the APIs. Raises ValueError for ADK's view_parameters and view_parameter_names, which restrict what a user may read
    and are not supported.
    """

    def __init__(
        self,
        *,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        credentials_config: BigtableCredentialsConfig | None = None,
        bigtable_tool_settings: BigtableToolSettings | None = None,
        view_parameter_names: Sequence[str] | None = None,
        view_parameters: object | None = None,
        tool_name_prefix: str | None = DEFAULT_BIGTABLE_TOOL_NAME_PREFIX,
        base_url: str = "https://bigtable.googleapis.com",
        admin_url: str = "https://bigtableadmin.googleapis.com",
    ) -> None:
        if view_parameter_names or view_parameters:
            raise ValueError("BigtableToolset has no parameterized views: view_parameters must not be given")
        data = GoogleRestApi(f"{base_url.rstrip('/')}/v2")
        admin = GoogleRestApi(f"{admin_url.rstrip('/')}/v2")
        functions = _BigtableFunctions(data, admin, bigtable_tool_settings or BigtableToolSettings())
        tools = [
            GoogleTool(one, credentials_config=credentials_config, on_interrupt="retry")
            for one in (
                functions.list_instances,
                functions.get_instance_info,
                functions.list_tables,
                functions.get_table_info,
                functions.list_clusters,
                functions.get_cluster_info,
                functions.execute_sql,
            )
        ]
        super().__init__(tools, [data, admin], tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)


class _BigtableFunctions:
    """The functions of the tools. Models see their docstrings."""

    def __init__(self, data: GoogleRestApi, admin: GoogleRestApi, settings: BigtableToolSettings) -> None:
        self._data = data
        self._admin = admin
        self._settings = settings

    async def list_instances(self, project_id: str, credentials: Credentials | None) -> JsonObject:
        """Lists the Bigtable instances of a project.

        Args:
            project_id: The Google Cloud project.
        """
        found = self._admin.pages(credentials, path_of("projects", project_id, "instances"), "instances")
        return success([_instance(project_id, one) async for one in found])

    async def get_instance_info(self, project_id: str, instance_id: str, credentials: Credentials | None) -> JsonObject:
        """Describes a Bigtable instance: its state, type and labels.

        Args:
            project_id: The Google Cloud project.
            instance_id: The instance.
        """
        return success(_instance(project_id, await self._admin.get(credentials, _path(project_id, instance_id))))

    async def list_tables(self, project_id: str, instance_id: str, credentials: Credentials | None) -> JsonObject:
        """Lists the tables of a Bigtable instance.

        Args:
            project_id: The Google Cloud project.
            instance_id: The instance.
        """
        found = self._admin.pages(credentials, f"{_path(project_id, instance_id)}/tables", "tables")
        return success(
            [
                {
                    "project_id": project_id,
                    "instance_id": instance_id,
                    "table_id": _last(table.get("name")),
                    "table_name": table.get("name") or "",
                }
                async for table in found
            ]
        )

    async def get_table_info(
        self, project_id: str, instance_id: str, table_id: str, credentials: Credentials | None
    ) -> JsonObject:
        """Describes a Bigtable table: its column families.

        Args:
            project_id: The Google Cloud project.
            instance_id: The instance.
            table_id: The table.
        """
        path = f"{_path(project_id, instance_id)}/tables/{path_of(table_id)}"
        table = await self._admin.get(credentials, path, {"view": "SCHEMA_VIEW"})
        return success(
            {
                "project_id": project_id,
                "instance_id": instance_id,
                "table_id": table_id,
                "column_families": list(object_in(table, "columnFamilies")),
            }
        )

    async def list_clusters(self, project_id: str, instance_id: str, credentials: Credentials | None) -> JsonObject:
        """Lists the clusters of a Bigtable instance with their state, nodes, storage and location.

        Args:
            project_id: The Google Cloud project.
            instance_id: The instance.
        """
        found = self._admin.pages(credentials, f"{_path(project_id, instance_id)}/clusters", "clusters")
        clusters: list[JsonObject] = []
        async for cluster in found:
            name = cluster.get("name") or ""
            clusters.append({**_cluster(project_id, instance_id, cluster), "cluster_name": name})
        return success(clusters)

    async def get_cluster_info(
        self, project_id: str, instance_id: str, cluster_id: str, credentials: Credentials | None
    ) -> JsonObject:
        """Describes a cluster of a Bigtable instance, with the limits of its automatic scaling.

        Args:
            project_id: The Google Cloud project.
            instance_id: The instance.
            cluster_id: The cluster.
        """
        path = f"{_path(project_id, instance_id)}/clusters/{path_of(cluster_id)}"
        cluster = await self._admin.get(credentials, path)
        scaling = object_in(cluster, "clusterConfig", "clusterAutoscalingConfig")
        limits = object_in(scaling, "autoscalingLimits")
        targets = object_in(scaling, "autoscalingTargets")
        return success(
            {
                **_cluster(project_id, instance_id, cluster),
                "min_serve_nodes": limits.get("minServeNodes") or 0,
                "max_serve_nodes": limits.get("maxServeNodes") or 0,
                "cpu_utilization_percent": targets.get("cpuUtilizationPercent") or 0,
            }
        )

    async def execute_sql(
        self,
        project_id: str,
        instance_id: str,
        query: str,
        credentials: Credentials | None,
        parameters: dict[str, Any] | None = None,
        parameter_types: dict[str, Any] | None = None,
    ) -> JsonObject:
        """Executes a SELECT statement in a Bigtable instance and returns the rows of the result.

        Args:
            project_id: The Google Cloud project.
            instance_id: The instance.
            query: One SELECT statement in GoogleSQL for Bigtable.
            parameters: Values by the names that the statement has with an @ in front.
            parameter_types: Types of parameters whose value does not show it: STRING, BYTES (in base64), INT64,
                FLOAT64, FLOAT32, BOOL, TIMESTAMP (RFC 3339) or DATE.
        """
        instance = _path(project_id, instance_id)
        rows = await execute_query(self._data, credentials, instance, query, parameters or {}, parameter_types or {})
        limit = self._settings.max_rows
        result: JsonObject = {"status": "SUCCESS", "rows": rows[:limit]}
        if len(rows) > limit:
            result["result_is_likely_truncated"] = True
        return result


def _path(project_id: str, instance_id: str) -> str:
    return path_of("projects", project_id, "instances", instance_id)


def _last(name: object) -> str:
    """The id at the end of a resource's name."""
    return str(name or "").rpartition("/")[2]


def _instance(project_id: str, instance: JsonObject) -> JsonObject:
    return {
        "project_id": project_id,
        "instance_id": _last(instance.get("name")),
        "display_name": instance.get("displayName") or "",
        "state": instance.get("state") or "NOT_KNOWN",
        "type": instance.get("type") or "UNSPECIFIED",
        "labels": object_in(instance, "labels"),
    }


def _cluster(project_id: str, instance_id: str, cluster: JsonObject) -> JsonObject:
    return {
        "project_id": project_id,
        "instance_id": instance_id,
        "cluster_id": _last(cluster.get("name")),
        "state": cluster.get("state") or "NOT_KNOWN",
        "serve_nodes": cluster.get("serveNodes") or 0,
        "default_storage_type": cluster.get("defaultStorageType") or "UNSPECIFIED",
        "location_id": _last(cluster.get("location")),
    }
