"""Functions whose failures are results that the model can react to."""

from __future__ import annotations

from typing import Any

from greenroom.errors import GreenroomError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.functions.function_tool import FunctionTool


class ReportingTool(FunctionTool):
    """A function that returns a JSON object. An exception becomes `{"status": "error", "error": …}`, and so does a
    result that has an `error`.
    """

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        try:
            result: Any = await super().run_async(args=args, tool_context=tool_context)
        except FileNotFoundError:
            result = {"error": f"There is no file {args.get('path')!r}."}
        except GreenroomError as error:
            result = {"error": error.detail}
        except Exception as error:  # an environment may raise anything; the model can take another way
            result = {"error": str(error) or type(error).__name__}

        if "error" in result:
            return {"status": "error", **result}

        return result
