"""One operation of a connector, as a tool."""

from __future__ import annotations

from typing import cast

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.auth import AuthConfig
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.application_integration.connector_api import Connection
from greenroom.tools.application_integration.connector_operations import (
    HIDDEN,
)
from greenroom.tools.login.access import Access
from greenroom.tools.openapi.rest_api_tool import RestApiTool
from greenroom.tools.tool import BaseTool


class IntegrationConnectorTool(BaseTool):
    """A call of a connector. The connection, and what is done to what, are filled in here, not by the model.

    access: of the end user, whose token is handed on to the connected system.
    """

    def __init__(self, call: RestApiTool, connection: Connection, *, access: Access | None = None) -> None:
        super().__init__(name=call.name, description=call.description)
        self._call = call
        self._access = access
        extensions = call.operation.extensions
        self._filled_in: JsonObject = {
            "connection_name": connection.name,
            "service_name": connection.service_name,
            "host": connection.host,
            "entity": extensions.get("x-entity"),
            "action": extensions.get("x-action"),
            "operation": extensions["x-operation"],
        }

    @property
    def auth_config(self) -> AuthConfig | None:
        return self._access.config if self._access is not None else None

    def _get_declaration(self) -> FunctionDeclaration:
        schema = self._call.operation.arguments_schema()
        schema["properties"] = {name: one for name, one in schema["properties"].items() if name not in HIDDEN}
        required = [
            name
            for name in cast("list[str]", schema.pop("required", []))
            if name in schema["properties"] and "default" not in schema["properties"][name]
        ]
        if required:
            schema["required"] = required
        return FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        given = {name: value for name, value in args.items() if name not in HIDDEN} | self._filled_in
        if self._access is not None:
            try:
                credential = await self._access.credential(tool_context)
            except ToolError as error:
                return {"error": f"{self.name} failed: {error.detail}."}
            token = credential.bearer_token() if credential is not None else None
            if not token:
                return self._access.ask(tool_context)
            given["dynamic_auth_config"] = {"oauth2_auth_code_flow.access_token": token}
        return await self._call.run_async(args=given, tool_context=tool_context)
