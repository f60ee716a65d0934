"""Names in the metadata of A2A parts, and the ways in which a session becomes a message. Source of the names: ADK."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from greenroom.records import wire
from greenroom.records.content import Part

ADK_METADATA_KEY_PREFIX: Final = "adk_"
"""Of the keys in the metadata of parts, messages and events."""

A2A_DATA_PART_METADATA_TYPE_KEY: Final = "type"
"""After the prefix: the key for the content of a data part, one of the words below."""

A2A_DATA_PART_METADATA_IS_LONG_RUNNING_KEY: Final = "is_long_running"
"""After the prefix: true for a call whose response is awaited."""

A2A_DATA_PART_METADATA_TYPE_FUNCTION_CALL: Final = "function_call"
A2A_DATA_PART_METADATA_TYPE_FUNCTION_RESPONSE: Final = "function_response"
A2A_DATA_PART_METADATA_TYPE_CODE_EXECUTION_RESULT: Final = "code_execution_result"
A2A_DATA_PART_METADATA_TYPE_EXECUTABLE_CODE: Final = "executable_code"
A2A_DATA_PART_METADATA_TYPE_TOOL_CALL: Final = "tool_call"
A2A_DATA_PART_METADATA_TYPE_TOOL_RESPONSE: Final = "tool_response"


class AggregationMode(StrEnum):
    """Ways of turning parts of a session into those of a message. AS_IS: each part is converted.
    EXTERNAL_HANDOFF: for agents that don't know the tools: function calls are left out, and
    function responses become text."""

    AS_IS = "AS_IS"
    EXTERNAL_HANDOFF = "EXTERNAL_HANDOFF"

    def apply(self, part: Part) -> Part | None:
        """Returns the part to convert, or None to leave it out."""
        if self is AggregationMode.AS_IS:
            return part
        if part.function_call is not None:
            return None
        answer = part.function_response
        if answer is None:
            return part
        return Part(text=f"{answer.name} response: {wire.encode(answer.response or {}).decode()}")
