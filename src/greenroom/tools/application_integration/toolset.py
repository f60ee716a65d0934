"""The tools of an integration or of a connection, read from Google on first use."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import msgspec

from greenroom.google_cloud.credentials import CLOUD_PLATFORM
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    AuthSchemeLike,
    ServiceAccount,
    to_auth_scheme,
)
from greenroom.tools.application_integration.connector_api import ConnectorApi, IntegrationError
from greenroom.tools.application_integration.tool import IntegrationConnectorTool, action_operation, entity_operation
from greenroom.tools.login.credential_provider import CredentialProvider, TokenExchange
from greenroom.tools.openapi.document import ApiDocument
from greenroom.tools.openapi.operation import MAX_TOOL_NAME, ApiOperation, free_name, read_operations, tool_name
from greenroom.tools.openapi.rest_api_tool import RestApiTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset, ToolPredicate
from greenroom.tools.web.http_client import HttpClient

_log = logging.getLogger("greenroom.tools")

_BEARER = AuthScheme(type="http", scheme="bearer", bearer_format="JWT")


class ApplicationIntegrationToolset(BaseToolset):
    """Takes `integration` and `triggers`, or `connection` with `entity_operations` or `actions`.

    entity_operations: LIST, GET, CREATE, UPDATE and DELETE by entity; an empty list means all
        supported ones.
    connection_template_override: the integration that calls the connector; default is
        `ExecuteConnection`.
    tool_name: an older name of tool_name_prefix.
    service_account_json: content of a key file; without it the machine's own credentials are used.
    auth_scheme, auth_credential: of the end user, passed on where the connection allows it. The
        first `get_tools` reads the descriptions, and raises IntegrationError (a ValueError) for
        unknown names, and GoogleCredentialsRefused or ConnectorAccessRefused (PermissionErrors).
    """

    def __init__(
        self,
        project: str,
        location: str,
        connection_template_override: str | None = None,
        integration: str | None = None,
        triggers: list[str] | None = None,
        connection: str | None = None,
        entity_operations: Mapping[str, list[str]] | None = None,
        actions: list[str] | None = None,
        tool_name_prefix: str | None = None,
        tool_instructions: str = "",
        service_account_json: str | None = None,
        auth_scheme: AuthSchemeLike | None = None,
        auth_credential: AuthCredential | None = None,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        *,
        tool_name: str | None = None,
        connectors_url: str = "https://connectors.googleapis.com",
        integrations_url: str | None = None,
        allow_private_network_access: bool = False,
        poll_seconds: float = 1.0,
    ) -> None:
        super().__init__(tool_filter=tool_filter)
        if not (integration and triggers) and not (connection and (entity_operations or actions)):
            raise ValueError("Give integration and triggers, or connection and (entity_operations or actions)")

        self._integration, self._triggers = (integration, triggers or []) if triggers else (None, [])
        self._connection = connection or ""
        self._entity_operations = dict(entity_operations or {})
        self._actions = list(actions or ())
        self._prefix = tool_name_prefix or tool_name or ""
        self._user: AuthConfig | None = None

        if auth_scheme is not None:
            self._user = AuthConfig(
                auth_scheme=to_auth_scheme(auth_scheme),
                raw_auth_credential=auth_credential,
            )

        self._client = HttpClient(allow_private_network_access=allow_private_network_access)
        account = _service_account(service_account_json)
        self._tool_options: dict[str, Any] = {
            "exchange": TokenExchange(self._client),
            "auth_scheme": _BEARER,
            "auth_credential": AuthCredential(auth_type=AuthCredentialTypes.SERVICE_ACCOUNT, service_account=account),
        }
        self._api = ConnectorApi(
            client=self._client,
            account=account,
            project=project,
            location=location,
            connectors_url=connectors_url.rstrip("/"),
            integrations_url=(integrations_url or f"https://{location}-integrations.googleapis.com").rstrip("/"),
            poll_seconds=poll_seconds,
        )
        template = quote(connection_template_override or "ExecuteConnection", safe="")
        self._base_url = (integrations_url or "https://integrations.googleapis.com").rstrip("/")
        self._path = f"/v2/{self._api.parent}/integrations/{template}:execute?triggerId=api_trigger/{template}"
        self._instructions = tool_instructions
        self._tools: list[BaseTool] | None = None

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        if self._tools is None:
            self._tools = await (self._triggered() if self._integration is not None else self._connected())
        return [tool for tool in self._tools if self.is_selected(tool, readonly_context)]

    async def close(self) -> None:
        await self._client.aclose()

    async def _triggered(self) -> list[BaseTool]:
        document = await self._api.integration_document(self._integration or "", self._triggers)
        prefix = f"{self._prefix}_" if self._prefix else ""
        operations = read_operations(ApiDocument(document))
        return [
            RestApiTool(replace(one, name=f"{prefix}{one.name}"), self._client, **self._tool_options)
            for one in operations
        ]

    async def _connected(self) -> list[BaseTool]:
        fields, allows_users = await self._api.connection(self._connection)
        operations: list[ApiOperation] = []
        for entity, wanted in self._entity_operations.items():
            described = await self._api.entity(self._connection, entity)
            for name in wanted or described.get("operations") or ():
                operations.append(entity_operation(name, entity, described, fields))

        for action in self._actions:
            described = await self._api.action(self._connection, action)
            operations.append(action_operation(action, described, fields))

        user: CredentialProvider | None = None
        if self._user is not None and allows_users:
            user = CredentialProvider(self._user, self._tool_options["exchange"])
        elif self._user is not None:
            _log.warning(
                "connection %s does not allow calls in the name of its users; they are made with its own account",
                fields["connectionName"],
            )

        tools: dict[str, BaseTool] = {}
        for operation in operations:
            if self._prefix:
                operation_id = f"{self._prefix}_{operation.name}"
            else:
                operation_id = operation.name

            # Several actions may have one display name.
            name = free_name(
                tool_name(operation_id, "post", self._path),
                tools,
                first=2,
                longest=MAX_TOOL_NAME,
            )
            complete = replace(
                operation,
                name=name,
                operation_id=operation_id,
                description=f"{operation.description} {self._instructions}".strip(),
                base_url=self._base_url,
                path=self._path,
            )
            tools[name] = IntegrationConnectorTool(
                complete,
                self._client,
                user=user,
                **self._tool_options,
            )

        return list(tools.values())


def _service_account(key: str | None) -> ServiceAccount:
    if key is None:
        return ServiceAccount(use_default_credential=True, scopes=[CLOUD_PLATFORM])
    try:
        content = msgspec.json.decode(key, type=dict[str, Any])
    except msgspec.DecodeError:
        raise IntegrationError("service_account_json is not the JSON of a service account's key") from None
    return ServiceAccount(service_account_credential=content, scopes=[CLOUD_PLATFORM])
