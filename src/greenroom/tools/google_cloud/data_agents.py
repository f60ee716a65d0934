"""Tools for data agents of Google's Conversational Analytics.

Source: `projects.locations.dataAgents` and `projects.locations.chat` of the Gemini Data Analytics API's reference, v1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import msgspec

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.google_cloud.credentials_config import BaseGoogleCredentialsConfig, Credentials
from greenroom.tools.google_cloud.data_answers import chat
from greenroom.tools.google_cloud.google_tool import GoogleTool
from greenroom.tools.google_cloud.rest_api import GoogleRestApi, objects_in
from greenroom.tools.google_cloud.toolset import GoogleCloudToolset
from greenroom.tools.toolset import ToolPredicate

_HOST = "geminidataanalytics"
_SEGMENT = r"[a-zA-Z0-9][a-zA-Z0-9_.-]*"
_LOCATION = r"[a-z][a-z0-9-]*"
_AGENT = re.compile(rf"projects/{_SEGMENT}/locations/({_LOCATION})/dataAgents/{_SEGMENT}")
_MAX_PAGES = 100
_MAX_AGENTS = 1000


@dataclass(kw_only=True)
class DataAgentCredentialsConfig(BaseGoogleCredentialsConfig):
    """The credentials of data agents' tools."""

    default_scopes: ClassVar[tuple[str, ...]] = ("https://www.googleapis.com/auth/bigquery",)


@dataclass(kw_only=True)
class DataAgentToolConfig:
    """Settings of data agents' tools. Raises ValueError."""

    max_query_result_rows: int = 50
    """More rows of a table in an answer are left out."""
    location: str | None = None
    """Of agents that are listed or created without one; default: global."""
    api_endpoint: str | None = None
    """Replaces the endpoint that follows from the location of an agent."""
    data_agent_modification_timeout_seconds: int = 60
    data_agent_modification_poll_interval_seconds: int = 2
    """The first wait for a change; each is twice as long as the one before, up to 10 seconds."""
    enable_data_agent_modification: bool = False
    """Adds the tools that create, change and delete agents."""

    def __post_init__(self) -> None:
        if self.data_agent_modification_timeout_seconds <= 0:
            raise ValueError("data_agent_modification_timeout_seconds must be positive")
        if self.data_agent_modification_poll_interval_seconds <= 0:
            raise ValueError("data_agent_modification_poll_interval_seconds must be positive")


class DataAgentToolset(GoogleCloudToolset):
    """Lists, describes and asks data agents, and changes them if the settings allow it.

    credentials_config: without it the machine's own credentials are used.
    """

    def __init__(
        self,
        *,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        credentials_config: DataAgentCredentialsConfig | None = None,
        data_agent_tool_config: DataAgentToolConfig | None = None,
        tool_name_prefix: str | None = None,
    ) -> None:
        settings = data_agent_tool_config or DataAgentToolConfig()
        api = GoogleRestApi(f"https://{_HOST}.googleapis.com/v1")
        functions = _DataAgentFunctions(api, settings)
        reading = [functions.list_accessible_data_agents, functions.get_data_agent_info]
        tools = [GoogleTool(one, credentials_config=credentials_config, on_interrupt="retry") for one in reading]
        tools.append(GoogleTool(functions.ask_data_agent, credentials_config=credentials_config))
        if settings.enable_data_agent_modification:
            changing = [functions.create_data_agent, functions.delete_data_agent, functions.update_data_agent]
            tools += [GoogleTool(one, credentials_config=credentials_config) for one in changing]
        super().__init__(tools, [api], tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)


class _DataAgentFunctions:
    """The functions of the tools. Models see their docstrings."""

    def __init__(self, api: GoogleRestApi, settings: DataAgentToolConfig) -> None:
        self._api = api
        self._settings = settings

    async def list_accessible_data_agents(
        self,
        project_id: str,
        credentials: Credentials | None,
        *,
        location: str | None = None,
        page_size: int | None = None,
        page_token: str | None = None,
    ) -> JsonObject:
        """Lists the data agents of a project that the user may ask.

        Args:
            project_id: The Google Cloud project.
            location: The location of the agents, such as global, eu or us.
            page_size: How many agents to return at most; without it, and without page_token, all are returned.
            page_token: The nextPageToken of the previous page.
        """
        if page_size is not None and page_size < 1:
            raise ToolError(f"page_size must be positive, not {page_size}")
        path = f"{self._parent(project_id, location)}/dataAgents:listAccessible"
        is_one_page = page_size is not None or page_token is not None

        agents: list[JsonObject] = []
        token = page_token or None
        for _ in range(_MAX_PAGES):
            page = await self._api.get(credentials, path, {"pageSize": page_size, "pageToken": token})
            agents += objects_in(page, "dataAgents")
            token = page.get("nextPageToken") or None
            if is_one_page or token is None or len(agents) >= _MAX_AGENTS:
                break

        result = _response(agents)
        if token is not None:
            result["nextPageToken"] = token
        return result

    async def get_data_agent_info(self, data_agent_name: str, credentials: Credentials | None) -> JsonObject:
        """Describes a data agent: its sources of data, its instructions and its options.

        Args:
            data_agent_name: The agent, as projects/my-project/locations/global/dataAgents/my-agent.
        """
        return _response(await self._api.get(credentials, self._agent(data_agent_name)))

    async def ask_data_agent(self, data_agent_name: str, query: str, *, credentials: Credentials | None) -> JsonObject:
        """Asks a data agent a question about its data. The response lists the steps to the answer, and the answer last.

        Args:
            data_agent_name: The agent, as projects/my-project/locations/global/dataAgents/my-agent.
            query: The question.
        """
        agent = self._agent(data_agent_name)
        parent = agent.rpartition("/dataAgents/")[0]
        body: JsonObject = {
            "messages": [{"userMessage": {"text": query}}],
            "dataAgentContext": {"dataAgent": data_agent_name},
        }
        return _response(await chat(self._api, credentials, parent, body, self._settings.max_query_result_rows))

    async def create_data_agent(
        self,
        project_id: str,
        data_agent_id: str,
        agent_config: str,
        location: str | None = None,
        *,
        credentials: Credentials | None,
    ) -> JsonObject:
        """Creates a data agent.

        Args:
            project_id: The Google Cloud project.
            data_agent_id: The id of the new agent.
            agent_config: The agent as JSON, with displayName, description and dataAnalyticsAgent, whose
                publishedContext has datasourceReferences and systemInstruction.
            location: The location of the agent, such as global, eu or us.
        """
        agents = f"{self._parent(project_id, location)}/dataAgents"
        _check_segment("data_agent_id", data_agent_id)
        query = {"dataAgentId": data_agent_id}
        operation = await self._api.post(credentials, agents, _agent_config(agent_config), query)
        return await self._finished(credentials, agents, operation)

    async def update_data_agent(
        self, data_agent_name: str, agent_config: str, update_mask: str, *, credentials: Credentials | None
    ) -> JsonObject:
        """Changes fields of a data agent.

        Args:
            data_agent_name: The agent, as projects/my-project/locations/global/dataAgents/my-agent.
            agent_config: The new values of the fields as JSON.
            update_mask: The fields, separated by commas, such as displayName,dataAnalyticsAgent.publishedContext. Each
                must be in agent_config.
        """
        agent = self._agent(data_agent_name)
        config = _agent_config(agent_config)
        fields = [field.strip() for field in update_mask.split(",") if field.strip()]
        missing = [field for field in fields if not _has_field(config, field)]
        if not fields or missing:
            raise ToolError(f"update_mask must name fields of agent_config, which lacks {', '.join(missing) or 'none'}")
        query = {"updateMask": ",".join(fields)}
        operation = await self._api.call("PATCH", credentials, agent, query, config)
        return await self._finished(credentials, agent, operation)

    async def delete_data_agent(self, data_agent_name: str, *, credentials: Credentials | None) -> JsonObject:
        """Deletes a data agent.

        Args:
            data_agent_name: The agent, as projects/my-project/locations/global/dataAgents/my-agent.
        """
        agent = self._agent(data_agent_name)
        operation = await self._api.call("DELETE", credentials, agent)
        return await self._finished(credentials, agent, operation)

    async def _finished(self, credentials: Credentials | None, url: str, operation: JsonObject) -> JsonObject:
        """The result when the operation is done. What is no operation is done at once."""
        if "/operations/" not in str(operation.get("name") or ""):
            return _response(operation)
        done = await self._api.finish(
            credentials,
            operation,
            base_url=url.partition("/projects/")[0],
            timeout_seconds=self._settings.data_agent_modification_timeout_seconds,
            first_wait_seconds=self._settings.data_agent_modification_poll_interval_seconds,
        )
        return _response(done)

    def _agent(self, name: str) -> str:
        """The URL of an agent. Raises ToolError."""
        found = _AGENT.fullmatch(name)
        if found is None:
            raise ToolError(f"{name!r} is not a name of the form projects/…/locations/…/dataAgents/…")
        return f"{endpoint_of(found[1], self._settings.api_endpoint)}/v1/{name}"

    def _parent(self, project_id: str, location: str | None) -> str:
        """The URL of a project's location. Raises ToolError."""
        _check_segment("project_id", project_id)
        found = location or self._settings.location or "global"
        if not re.fullmatch(_LOCATION, found):
            raise ToolError(f"{found!r} is not a location")
        return f"{endpoint_of(found, self._settings.api_endpoint)}/v1/projects/{project_id}/locations/{found}"


def endpoint_of(location: str, api_endpoint: str | None = None) -> str:
    """The URL of the API for agents of a location. api_endpoint: replaces it; a host or a URL."""
    if api_endpoint:
        return (api_endpoint if "://" in api_endpoint else f"https://{api_endpoint}").rstrip("/")
    if location == "global":
        return f"https://{_HOST}.googleapis.com"
    if location in ("eu", "us"):
        return f"https://{_HOST}.{location}.rep.googleapis.com"
    return f"https://{_HOST}-{location}.googleapis.com"


def _response(response: JsonValue) -> JsonObject:
    return {"status": "SUCCESS", "response": response}


def _check_segment(name: str, value: str) -> None:
    if not re.fullmatch(_SEGMENT, value):
        raise ToolError(f"{name} must have letters, digits, -, _ and . only, not {value!r}")


def _agent_config(text: str) -> JsonObject:
    try:
        config = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ToolError(f"agent_config is no JSON: {error}") from None
    if not isinstance(config, dict):
        raise ToolError("agent_config must be an object in JSON")
    return cast("JsonObject", config)


def _has_field(config: JsonObject, path: str) -> bool:
    """path: names joined by dots."""
    node: JsonValue = config
    for name in path.split("."):
        if not isinstance(node, dict) or name not in node:
            return False
        node = cast("JsonObject", node)[name]
    return True
