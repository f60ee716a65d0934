"""Tools that were written for LangChain and for CrewAI.

Source of names: ADK's adapters.
"""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from typing import Any

from greenroom.errors import ToolDeclarationError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool


class _ThirdPartyTool(BaseTool):
    """A tool of another framework.

    schema: of the arguments, as JSON Schema.
    model: the pydantic model of the arguments, if there is one.
    """

    def __init__(self, *, name: str, description: str, schema: JsonObject, model: Any) -> None:
        super().__init__(name=name, description=description)
        self._schema = schema
        self._model = model if hasattr(model, "model_validate") else None

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._schema,
        )

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """Invalid arguments are answered with an error that the model can correct. Exceptions of
        the tool propagate.
        """
        if self._model is not None:
            try:
                self._model.model_validate(args)
            except ValueError as error:
                return {"error": f"{self.name} was not called, because of these arguments: {error}"}
        return await self._call(args, tool_context)

    @abstractmethod
    async def _call(self, args: JsonObject, tool_context: ToolContext) -> JsonValue: ...


class LangchainTool(_ThirdPartyTool):
    """A LangChain tool, or an object with a method `_run` or `run`, whose signature then declares
    the arguments.

    Synchronous tools run in a thread. The result of a tool with `return_direct` is the agent's
    answer, unless it is an error. Raises ToolDeclarationError for other objects.
    """

    def __init__(self, tool: Any, name: str | None = None, description: str | None = None) -> None:
        model: Any = None
        self._method: FunctionTool | None = None

        if hasattr(tool, "ainvoke"):
            from langchain_core.utils.function_calling import convert_to_openai_function

            schema: JsonObject = convert_to_openai_function(tool)["parameters"]
            model = tool.args_schema and tool.tool_call_schema
        else:
            method = getattr(tool, "_run", None) or getattr(tool, "run", None)
            if method is None:
                raise ToolDeclarationError(type(tool).__name__, "it has no method `run`")
            self._method = FunctionTool(method)
            schema = self._method._get_declaration().json_schema()

        super().__init__(
            name=name or getattr(tool, "name", "") or type(tool).__name__,
            description=description or getattr(tool, "description", ""),
            schema=schema,
            model=model,
        )
        self.tool = tool

    async def _call(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        result: JsonValue
        if self._method is not None:
            result = await self._method.run_async(args=args, tool_context=tool_context)
        else:
            result = await self.tool.ainvoke(args)
            if inspect.isawaitable(result):  # the tool was made of a coroutine function, passed as a plain one
                result = await result

        if getattr(self.tool, "return_direct", False) and not _is_error(result):
            tool_context.actions.skip_summarization = True

        return result


class CrewaiTool(_ThirdPartyTool):
    """A CrewAI tool, which runs in a thread. Without a name, the tool's is used, in small letters
    and with `_` for spaces.
    """

    def __init__(self, tool: Any, *, name: str = "", description: str = "") -> None:
        super().__init__(
            name=name or tool.name.lower().replace(" ", "_"),
            description=description or tool.description,
            schema=tool.args_schema.model_json_schema(),
            model=tool.args_schema,
        )
        self.tool = tool

    async def _call(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        result = await asyncio.to_thread(self.tool.run, **args)
        return await result if inspect.isawaitable(result) else result


def _is_error(result: object) -> bool:
    return isinstance(result, dict) and "error" in result
