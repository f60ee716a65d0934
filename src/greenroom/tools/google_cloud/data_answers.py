"""Questions to Google's Conversational Analytics API, and its answers.

Source: `projects.locations.chat` of the Gemini Data Analytics API, v1: the reply is a list of messages.
"""

from __future__ import annotations

from typing import cast

import msgspec

from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.google_cloud.credentials_config import Credentials
from greenroom.tools.google_cloud.rest_api import GoogleRestApi, decoded, object_in, objects_in, path_of

OMITTED = "Intermediate result omitted"
_INSTRUCTION = (
    "Show the data that support the answer, then draw a conclusion from them. Look at what the numbers mean for the "
    "question, not only at counts, and at open questions from several sides. Answer in plain text, without charts."
)


async def ask_with_context(
    api: GoogleRestApi,
    credentials: Credentials | None,
    project: str,
    question: str,
    sources: JsonObject,
    max_rows: int,
) -> list[JsonValue]:
    """Asks about data sources that the question names."""
    context: JsonObject = {"datasourceReferences": sources, "systemInstruction": _INSTRUCTION}
    body: JsonObject = {"messages": [{"userMessage": {"text": question}}], "inlineContext": context}
    return await chat(api, credentials, path_of("projects", project, "locations", "global"), body, max_rows)


async def chat(
    api: GoogleRestApi, credentials: Credentials | None, location: str, body: JsonObject, max_rows: int
) -> list[JsonValue]:
    """The messages of the answer. Of tables only the last is kept, with at most max_rows rows."""
    reply = await api.send("POST", credentials, f"{location}:chat", content=msgspec.json.encode(body))
    found = decoded(reply)
    messages = cast("list[JsonValue]", found) if isinstance(found, list) else [found]

    shown: list[JsonValue] = []
    newest_table: int | None = None
    for message in messages:
        system = object_in(message, "systemMessage")
        if not system:
            shown.append(message)
            continue
        table = _table(system, max_rows)
        if table is None:
            shown.append(system)
            continue
        if newest_table is not None:
            shown[newest_table] = {"Data Retrieved": OMITTED}
        newest_table = len(shown)
        shown.append({"Data Retrieved": table})
    return shown


def _table(message: JsonObject, max_rows: int) -> JsonObject | None:
    """The table in a message: the names of its columns, its rows as lists, and how many there are."""
    result = object_in(message, "data", "result")
    if not isinstance(result.get("data"), list):
        return None
    records = objects_in(result, "data")
    fields = objects_in(result, "schema", "fields")
    headers = [str(field.get("name")) for field in fields] or list(records[0] if records else ())
    rows = [[record.get(header) for header in headers] for record in records[:max_rows]]
    count = f"all {len(records)}" if len(rows) == len(records) else f"the first {len(rows)} of {len(records)}"
    return {"headers": headers, "rows": rows, "summary": f"Showing {count} rows."}
