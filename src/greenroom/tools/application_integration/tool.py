"""Tools for the operations on a connector's entities and for its actions.

All of them execute the same integration, with the operation in fields of the request body that the
model doesn't see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.auth import AuthConfig
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.application_integration.connector_api import IntegrationError
from greenroom.tools.login.credential_provider import CredentialProvider
from greenroom.tools.openapi.document import ApiDocument, SchemaReader
from greenroom.tools.openapi.operation import ApiOperation, ApiParameter, BodyFormat, parameter_name
from greenroom.tools.openapi.rest_api_tool import RestApiTool
from greenroom.tools.web.http_client import HttpClient

HIDDEN = (
    "connection_name", "service_name", "host", "entity", "operation", "action", "dynamic_auth_config",
)  # fmt: skip
CUSTOM_QUERY = "ExecuteCustomQuery"

_ENTITY_FIELDS = {
    "LIST": ("filterClause", "pageSize", "pageToken", "sortByColumns"),
    "GET": ("entityId",),
    "CREATE": ("connectorInputPayload",),
    "UPDATE": ("connectorInputPayload", "entityId", "filterClause"),
    "DELETE": ("entityId", "filterClause"),
}
_REQUIRED = frozenset({"entityId", "connectorInputPayload", "query"})
_SCHEMAS: dict[str, JsonObject] = {
    "dynamicAuthConfig": {"type": "object"},
    "entityId": {"type": "string", "description": "The key of the entry."},
    "filterClause": {
        "type": "string",
        "description": "A condition as in SQL's WHERE, such as: field1='value1' AND field2='value2'",
    },
    "pageSize": {"type": "integer", "description": "How many to return at once.", "default": 50},
    "pageToken": {"type": "string", "description": "The page token of the previous page."},
    "sortByColumns": {"type": "array", "items": {"type": "string"}, "description": "Columns to sort by."},
    "query": {"type": "string", "description": "The query, in the SQL of the connected system."},
    "timeout": {"type": "integer", "description": "How many seconds the query may take.", "default": 120},
}
_ENTITY_TEXTS = {
    "LIST": "Lists {entity}. A page token in the result means that there are more: ask the user whether to continue.",
    "GET": "Returns one of {entity}, with all its fields.",
    "CREATE": "Creates a new entry in {entity}.",
    "UPDATE": "Changes an entry of {entity}.",
    "DELETE": "Deletes an entry of {entity}.",
}


def entity_operation(
    operation: str,
    entity: str,
    described: JsonObject,
    connection: JsonObject,
) -> ApiOperation:
    """The operation without name prefix, URL and path, which the toolset adds.

    operation: LIST, GET, CREATE, UPDATE or DELETE; IntegrationError for any other.
    connection: its fields of a call.
    """
    kind = operation.upper()
    if kind not in _ENTITY_FIELDS:
        operations = ", ".join(_ENTITY_FIELDS)
        raise IntegrationError(f"Unknown operation {operation!r} on entity {entity!r}; known: {operations}")

    verb = "ENTITIES" if kind == "LIST" else "ENTITY"
    return _operation(
        f"{kind.lower()}_{entity}",
        _ENTITY_TEXTS[kind].format(entity=entity),
        _ENTITY_FIELDS[kind],
        payload=described.get("jsonSchema"),
        filled_in={**connection, "entity": entity, "operation": f"{kind}_{verb}"},
    )


def action_operation(action: str, described: JsonObject, connection: JsonObject) -> ApiOperation:
    shown = re.sub(r"\s+", "", described.get("displayName") or action)
    is_query = action == CUSTOM_QUERY
    text = described.get("description") or f"Runs the action {action}."
    return _operation(
        shown,
        f"{text} Translate what the user wants into SQL." if is_query else text,
        ("query", "timeout", "pageSize") if is_query else ("connectorInputPayload",),
        required=("timeout", "pageSize"),
        payload=described.get("inputJsonSchema"),
        filled_in={**connection, "action": action, "operation": "EXECUTE_QUERY" if is_query else "EXECUTE_ACTION"},
    )


def _operation(
    name: str,
    description: str,
    fields: Iterable[str],
    *,
    required: Sequence[str] = (),
    payload: JsonValue,
    filled_in: JsonObject,
) -> ApiOperation:
    if isinstance(payload, dict):
        plain = cast("JsonObject", payload)
    else:
        plain = {"type": "object"}

    schemas: JsonObject = {
        **_SCHEMAS,
        "connectorInputPayload": SchemaReader(ApiDocument({"openapi": "3.0.1", **plain})).read(plain),
        # The default of a required parameter is sent when the model gives no value.
        **{field: {"default": value} for field, value in filled_in.items()},
    }
    required = (*_REQUIRED, *required, *filled_in)
    return ApiOperation(
        name=name,
        operation_id=name,
        description=description,
        method="POST",
        base_url="",
        path="",
        parameters=tuple(
            ApiParameter(
                name=parameter_name(field, "body"),
                original=field,
                location="body",
                schema=schemas[field],
                is_required=field in required,
            )
            for field in (*fields, "dynamicAuthConfig", *filled_in)
        ),
        body=BodyFormat(media_type="application/json", is_required=True),
    )


class IntegrationConnectorTool(RestApiTool):
    """Calls a connector. The connection, the entity or action, and the operation are filled in, not
    given by the model.

    user: the credentials of the end user, whose token is passed to the connected system.
    """

    def __init__(
        self, operation: ApiOperation, client: HttpClient, *, user: CredentialProvider | None, **options: Any
    ) -> None:
        super().__init__(operation, client, **options)
        self._user = user

    @property
    def auth_config(self) -> AuthConfig | None:
        return self._user.config if self._user is not None else None

    def _get_declaration(self) -> FunctionDeclaration:
        shown = tuple(
            replace(parameter, is_required=parameter.is_required and "default" not in parameter.schema)
            for parameter in self.operation.parameters
            if parameter.name not in HIDDEN
        )
        schema = replace(self.operation, parameters=shown).arguments_schema()
        return FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=schema,
        )

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        arguments = {name: value for name, value in args.items() if name not in HIDDEN}
        if self._user is not None:
            try:
                credential = await self._user.credential(tool_context)
            except ToolError as error:
                return {"error": f"{self.name} failed: {error.detail}."}

            if credential is not None:
                token = credential.bearer_token()
            else:
                token = None

            if not token:
                return self._user.request(tool_context)

            arguments["dynamic_auth_config"] = {"oauth2_auth_code_flow.access_token": token}

        return await super().run_async(args=arguments, tool_context=tool_context)
