"""Queries in Bigtable's SQL.

Source: `projects.instances.prepareQuery` and `executeQuery` of the Bigtable API, v2. A query is prepared, which returns
its columns, and then executed, which returns a stream of parts of its rows. Over REST the stream is a JSON array:

    [{"results": {"protoRowsBatch": {"batchData": "…"}}},
     {"results": {"protoRowsBatch": {"batchData": "…"}, "batchChecksum": 1, "resumeToken": "…"}}]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import msgspec

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.google_cloud.bigtable.values import decode_base64, parameter, read_rows
from greenroom.tools.google_cloud.credentials_config import Credentials
from greenroom.tools.google_cloud.rest_api import GoogleRestApi, decoded, object_in, objects_in


async def execute_query(
    api: GoogleRestApi,
    credentials: Credentials | None,
    instance: str,
    query: str,
    parameters: Mapping[str, JsonValue],
    parameter_types: Mapping[str, JsonValue],
) -> list[JsonObject]:
    """A map per row, by the names of the columns. instance: `projects/…/instances/…`.

    Raises ToolError, also for results of more than 10 MiB.
    """
    params = {name: parameter(name, value, parameter_types.get(name)) for name, value in parameters.items()}
    prepare: JsonObject = {"query": query, "protoFormat": {}}
    if params:
        prepare["paramTypes"] = {name: one["type"] for name, one in params.items()}
    prepared = await api.post(credentials, f"{instance}:prepareQuery", prepare)
    columns = objects_in(prepared, "metadata", "protoSchema", "columns")

    execute: JsonObject = {"preparedQuery": prepared.get("preparedQuery") or "", "params": params}
    reply = await api.send("POST", credentials, f"{instance}:executeQuery", content=msgspec.json.encode(execute))
    found = decoded(reply)
    parts = cast("list[JsonValue]", found) if isinstance(found, list) else [found]
    return read_rows(columns, _joined(parts))


def _joined(parts: list[JsonValue]) -> bytes:
    """The serialized rows: messages of protobuf one after the other are one message."""
    complete = bytearray()
    since_token = bytearray()
    for part in parts:
        error = object_in(part, "error")
        if error:
            raise ToolError(f"The query failed: {error.get('message') or error.get('status')}")

        results = object_in(part, "results")
        if results.get("reset"):
            since_token.clear()
        since_token += decode_base64(object_in(results, "protoRowsBatch").get("batchData") or "")
        if results.get("resumeToken"):
            complete += since_token
            since_token.clear()
    return bytes(complete + since_token)
