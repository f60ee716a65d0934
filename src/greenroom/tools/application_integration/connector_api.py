"""Clients of Google's Integration Connectors and Application Integration: descriptions of
connections and triggers.

Source of the wire format: the REST references of connectors.googleapis.com and
integrations.googleapis.com.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from greenroom.errors import ToolError
from greenroom.google_cloud.credentials import GoogleCredentials
from greenroom.records.auth import ServiceAccount
from greenroom.records.base import JsonObject
from greenroom.tools.web.http_client import Headers, HttpClient

OPERATION_SECONDS = 60.0
"""Timeout of the operation that describes an entity or action."""


class IntegrationError(ToolError, ValueError):
    """A name that Google does not know, or an invalid reply."""


@dataclass(kw_only=True)
class ConnectorApi:
    """Reads the schemas of a connection of Integration Connectors.

    connectors_url, integrations_url: base URLs, without a path.

    Raises IntegrationError, ConnectorAccessRefused and GoogleCredentialsRefused.
    """

    client: HttpClient
    account: ServiceAccount
    project: str
    location: str
    connectors_url: str
    integrations_url: str
    poll_seconds: float

    def __post_init__(self) -> None:
        self._credentials = GoogleCredentials(self.account)
        self.parent = f"projects/{quote(self.project, safe='')}/locations/{quote(self.location, safe='')}"

    async def integration_document(self, integration: str, triggers: list[str]) -> JsonObject:
        """The OpenAPI document of an integration's API triggers."""
        body = {
            "apiTriggerResources": [{"integrationResource": integration, "triggerId": triggers}],
            "fileFormat": "JSON",
        }

        answer = await self._ask(
            "POST",
            f"{self.integrations_url}/v1/{self.parent}:generateOpenApiSpec",
            body,
        )
        try:
            return msgspec.json.decode(answer.get("openApiSpec", ""), type=dict[str, Any])
        except (msgspec.DecodeError, TypeError):
            reason = f"Google's description of integration {integration!r} is not an OpenAPI document"
            raise IntegrationError(reason) from None

    async def connection(self, name: str) -> tuple[JsonObject, bool]:
        """The fields of a call that name the connection and its service, and whether calls in the
        name of the app's users are allowed.
        """
        answer = await self._ask("GET", f"{self._connection_url(name)}?view=BASIC")
        host: str = answer.get("host") or ""
        fields: JsonObject = {
            "connectionName": answer.get("name") or f"{self.parent}/connections/{name}",
            "serviceName": answer.get("tlsServiceDirectory" if host else "serviceDirectory") or "",
            "host": host,
        }
        return fields, answer.get("authOverrideEnabled") is True

    async def entity(self, connection: str, entity: str) -> JsonObject:
        """`jsonSchema` and `operations` of an entity type."""
        return await self._described(connection, f"getEntityType?entityId={quote(entity, safe='')}")

    async def action(self, connection: str, action: str) -> JsonObject:
        """`inputJsonSchema`, `outputJsonSchema`, `displayName` and `description` of an action."""
        return await self._described(connection, f"getAction?actionId={quote(action, safe='')}")

    async def _described(self, connection: str, what: str) -> JsonObject:
        operation = await self._ask(
            "GET",
            f"{self._connection_url(connection)}/connectionSchemaMetadata:{what}",
        )
        name = operation.get("name")
        if not name and not operation.get("done"):
            raise IntegrationError(f"Google does not describe {what!r} of connection {connection!r}")

        deadline = time.monotonic() + OPERATION_SECONDS
        while not operation.get("done"):
            if time.monotonic() > deadline:
                raise IntegrationError(f"Google took too long to describe {what!r} of connection {connection!r}")
            await asyncio.sleep(self.poll_seconds)
            operation = await self._ask("GET", f"{self.connectors_url}/v1/{name}")

        if "error" in operation:
            raise IntegrationError(f"Google can't describe {what!r} of connection {connection!r}: {operation['error']}")

        return operation.get("response") or {}

    def _connection_url(self, name: str) -> str:
        return f"{self.connectors_url}/v1/{self.parent}/connections/{quote(name, safe='')}"

    async def _ask(self, method: str, url: str, body: JsonObject | None = None) -> JsonObject:
        headers: Headers = [
            (b"Authorization", f"Bearer {await self._credentials.token()}".encode()),
            (b"Content-Type", b"application/json"),
        ]
        if self.account.use_default_credential:
            headers.append((b"x-goog-user-project", (self._credentials.quota_project or self.project).encode()))

        content = msgspec.json.encode(body) if body is not None else None

        reply = await self.client.send(method, url, headers=headers, content=content)
        if reply.status in (400, 404):
            raise IntegrationError(
                f"Google answered with status {reply.status}: check the names of project, location, connection, "
                "integration, entities and actions"
            )
        if reply.status in (401, 403):
            raise ConnectorAccessRefused(reply.status)

        try:
            if reply.status == 200:
                return msgspec.json.decode(reply.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass

        raise IntegrationError(f"Google answered with status {reply.status} and {reply.media_type or 'no type'}")


class ConnectorAccessRefused(ToolError, PermissionError):
    def __init__(self, status: int) -> None:
        super().__init__(f"Google refuses the service account with status {status}: it needs a role on the connection")
        self.status_code = status
