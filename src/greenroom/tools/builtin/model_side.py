"""Tools that the model's service executes; they only add an entry to the request.

Source of names and rules: the Gemini API's tool list, and ADK's checks of models.
"""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import ToolContext
from greenroom.models.gemini.contents import UNCHECKED, gemini_version
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import Tool
from greenroom.tools.tool import BaseTool


class ModelSideTool(BaseTool):
    """Raises AgentConfigError, when a request is made, for models that are no Gemini or older than
    `since_gemini`.

    model: used in place of the agent's own, on the same service.
    """

    def __init__(
        self, name: str, description: str, entry: Tool, *, since_gemini: int = 1, model: str | None = None
    ) -> None:
        super().__init__(name=name, description=description)
        self.entry = entry
        self.since_gemini = since_gemini
        self.model = model

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        if self.model is not None:
            llm_request.model = self.model

        version = gemini_version(llm_request.model)
        if version is None or version < self.since_gemini:
            if self.since_gemini > 1:
                least = f" {self.since_gemini} or newer"
            else:
                least = ""

            raise AgentConfigError(
                f"Tool {self.name!r} of agent {tool_context.agent_name!r} is run by Gemini{least}, which "
                f"{llm_request.model!r} is not. Should it be one under another name, set {UNCHECKED}=1."
            )

        llm_request.mark(self.entry)


class GoogleSearchTool(ModelSideTool):
    """Google Search, done by the model itself.

    bypass_multi_tools_limit: a separate agent does the search, so that older models can have
    other tools too.
    """

    def __init__(self, *, bypass_multi_tools_limit: bool = False, model: str | None = None) -> None:
        super().__init__(
            "google_search",
            "Searches the web with Google.",
            Tool(google_search={}),
            model=model,
        )
        self.bypass_multi_tools_limit = bypass_multi_tools_limit


class GoogleMapsGroundingTool(ModelSideTool):
    def __init__(self) -> None:
        super().__init__("google_maps", "Grounds answers in Google Maps.", Tool(google_maps={}))


class UrlContextTool(ModelSideTool):
    def __init__(self) -> None:
        description = "Reads the pages that a prompt links to."
        super().__init__("url_context", description, Tool(url_context={}), since_gemini=2)


class EnterpriseWebSearchTool(ModelSideTool):
    def __init__(self) -> None:
        description = "Searches the web as regulated industries may."
        super().__init__("enterprise_web_search", description, Tool(enterprise_web_search={}))


class CodeExecutionTool(ModelSideTool):
    def __init__(self) -> None:
        description = "Runs Python that the model writes, where the model runs."
        super().__init__("code_execution", description, Tool(code_execution={}))


class VertexAiSearchTool(ModelSideTool):
    """Exactly one of data_store_id and search_engine_id, each a full resource name.

    data_store_specs: which data stores of the engine, each `{"dataStore": …, "filter": …}`.
    filter: an expression in the service's own syntax.

    Raises AgentConfigError.
    """

    def __init__(
        self,
        *,
        data_store_id: str | None = None,
        data_store_specs: Sequence[JsonObject] | None = None,
        search_engine_id: str | None = None,
        filter: str | None = None,  # noqa: A002 - ADK's name
        max_results: int | None = None,
        name: str = "vertex_ai_search",
        description: str = "Searches a data store of Vertex AI Search.",
        bypass_multi_tools_limit: bool = False,
    ) -> None:
        if (data_store_id is None) == (search_engine_id is None):
            raise AgentConfigError("VertexAiSearchTool needs either data_store_id or search_engine_id")
        if data_store_specs is not None and search_engine_id is None:
            raise AgentConfigError("VertexAiSearchTool takes data_store_specs only with search_engine_id")

        search: JsonObject = {
            "datastore": data_store_id,
            "dataStoreSpecs": list(data_store_specs) if data_store_specs is not None else None,
            "engine": search_engine_id,
            "filter": filter,
            "maxResults": max_results,
        }
        options = {key: value for key, value in search.items() if value is not None}
        super().__init__(name, description, Tool(retrieval={"vertexAiSearch": options}))
        self.bypass_multi_tools_limit = bypass_multi_tools_limit


google_search = GoogleSearchTool()
google_maps_grounding = GoogleMapsGroundingTool()
url_context = UrlContextTool()
enterprise_web_search = EnterpriseWebSearchTool()
enterprise_web_search_tool = enterprise_web_search
code_execution = CodeExecutionTool()
