"""greenroom hosts AI agents. Every public name is loaded when it is first used; `__init__.pyi` has their types."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from greenroom.version import __version__ as __version__

_HOMES = {
    "greenroom.a2a.part_metadata": "A2A_DATA_PART_METADATA_IS_LONG_RUNNING_KEY "
    "A2A_DATA_PART_METADATA_TYPE_CODE_EXECUTION_RESULT "
    "A2A_DATA_PART_METADATA_TYPE_EXECUTABLE_CODE A2A_DATA_PART_METADATA_TYPE_FUNCTION_CALL "
    "A2A_DATA_PART_METADATA_TYPE_FUNCTION_RESPONSE A2A_DATA_PART_METADATA_TYPE_KEY "
    "A2A_DATA_PART_METADATA_TYPE_TOOL_CALL A2A_DATA_PART_METADATA_TYPE_TOOL_RESPONSE "
    "ADK_METADATA_KEY_PREFIX AggregationMode",
    "greenroom.a2a.well_known": "AGENT_CARD_WELL_KNOWN_PATH",
    "greenroom.agents.agent": "BaseAgent",
    "greenroom.agents.agent_tool": "AgentTool",
    "greenroom.agents.base_llm_agent": "IncludeContents InstructionProvider ToolUnion",
    "greenroom.agents.callbacks": "AfterAgentCallback AfterModelCallback AfterToolCallback BeforeAgentCallback "
    "BeforeModelCallback BeforeToolCallback OnModelErrorCallback OnToolErrorCallback",
    "greenroom.agents.config_types": "AgentRefConfig ArgumentConfig BaseAgentConfig CodeConfig",
    "greenroom.agents.frameworks.langgraph.agent": "LangGraphAgent",
    "greenroom.agents.frameworks.langgraph.chat_model": "ChatGreenroom",
    "greenroom.agents.frameworks.openai_agents.agent": "OpenAIAgentsAgent",
    "greenroom.agents.frameworks.openai_agents.model": "OpenAIAgentsModel",
    "greenroom.agents.frameworks.pydantic_ai.agent": "PydanticAiAgent",
    "greenroom.agents.frameworks.pydantic_ai.chat_model": "GreenroomModel",
    "greenroom.agents.google_search": "GoogleSearchAgentTool create_google_search_agent",
    "greenroom.agents.llm_agent": "Agent LlmAgent",
    "greenroom.agents.node": "BaseNode RetryConfig",
    "greenroom.agents.planning": "ACTION_TAG BasePlanner BuiltInPlanner FINAL_ANSWER_TAG PLANNING_TAG "
    "PlanReActPlanner REASONING_TAG REPLANNING_TAG",
    "greenroom.agents.remote_a2a.agent": "RemoteA2aAgent",
    "greenroom.agents.remote_a2a.config": "A2aCardRequestConfig A2aRemoteAgentConfig CardRequestInterceptor "
    "ParametersConfig RequestInterceptor",
    "greenroom.agents.transfer": "TransferToAgentTool transfer_to_agent",
    "greenroom.agents.workflow.edges": "DEFAULT_ROUTE Edge START",
    "greenroom.agents.workflow.errors": "DynamicNodeFailError GraphValidationError NodeInterrupted NodeTimeoutError "
    "StateSchemaError WorkflowConfigurationError WorkflowDataError",
    "greenroom.agents.workflow.function_node": "FunctionNode",
    "greenroom.agents.workflow.nodes": "JoinNode Node node",
    "greenroom.agents.workflow.workflow": "Workflow",
    "greenroom.agents.workflows": "LoopAgent ParallelAgent SequentialAgent",
    "greenroom.apps.app": "App MemoryPolicy ResumabilityConfig",
    "greenroom.apps.component_registry": "ComponentRegistry",
    "greenroom.apps.load_built": "AgentLoadingProperties BuiltOutputLoader",
    "greenroom.apps.load_yaml": "from_config",
    "greenroom.apps.loader": "StaticAppLoader",
    "greenroom.artifacts.in_memory": "InMemoryArtifactService",
    "greenroom.artifacts.encrypted": "EncryptedArtifactService",
    "greenroom.artifacts.files": "FileArtifactService",
    "greenroom.artifacts.object_store": "GcsArtifactService ObjectStoreArtifactService",
    "greenroom.artifacts.service": "BaseArtifactService",
    "greenroom.cli.fast_api": "get_fast_api_app",
    "greenroom.client.async_client": "AsyncClient",
    "greenroom.client.client": "Client",
    "greenroom.client.run_stream": "RunStream",
    "greenroom.code_executors.agent_engine": "AgentEngineSandboxCodeExecutor",
    "greenroom.code_executors.container": "ContainerCodeExecutor",
    "greenroom.code_executors.context": "CodeExecutorContext",
    "greenroom.code_executors.cloud_run": "CloudRunSandboxCodeExecutor",
    "greenroom.code_executors.executor": "BaseCodeExecutor BuiltInCodeExecutor CodeExecutionInput CodeExecutionResult",
    "greenroom.code_executors.gke": "GkeCodeExecutor",
    "greenroom.code_executors.sandboxed": "SandboxCodeExecutor",
    "greenroom.code_executors.unsafe_local": "UnsafeLocalCodeExecutor",
    "greenroom.code_executors.vertex": "VertexAiCodeExecutor",
    "greenroom.credentials.in_memory": "InMemoryCredentialService",
    "greenroom.credentials.service": "BaseCredentialService",
    "greenroom.credentials.sql": "SqliteCredentialService",
    "greenroom.embeddings.embeddings": "BaseEmbeddings",
    "greenroom.embeddings.gemini": "GeminiEmbeddings",
    "greenroom.embeddings.local": "LocalEmbeddings",
    "greenroom.embeddings.openai": "OpenAIEmbeddings",
    "greenroom.environments.agent_engine": "AgentEngineEnvironment",
    "greenroom.environments.daytona": "DaytonaEnvironment",
    "greenroom.environments.e2b": "E2BEnvironment",
    "greenroom.environments.bubblewrap": "BubblewrapSandbox",
    "greenroom.environments.container": "ContainerSandbox",
    "greenroom.environments.container_engine": "DEFAULT_IMAGE_TAG",
    "greenroom.environments.default": "default_sandbox",
    "greenroom.environments.environment": "BaseEnvironment",
    "greenroom.environments.files": "File",
    "greenroom.environments.local": "LocalEnvironment",
    "greenroom.environments.process": "ExecutionResult",
    "greenroom.environments.sandbox": "OutputListener Sandbox SandboxLimits",
    "greenroom.environments.webassembly": "WebAssemblySandbox",
    "greenroom.environments.opensandbox": "OpenSandboxEnvironment",
    "greenroom.encryption.key_provider": "KeyProvider WrappedKey",
    "greenroom.errors": "A2AClientError AgentCardResolutionError AlreadyExistsError InputValidationError "
    "LlmCallsLimitExceededError MappedError MessageConversionError ModelError "
    "ModelErrorCategory NotFoundError ReplayConfigError ReplayVerificationError RetryStrategy "
    "SessionNotFoundError",
    "greenroom.evaluation.agent_evaluator": "AgentEvaluator",
    "greenroom.evaluation.config": "CustomMetricConfig EvalConfig",
    "greenroom.evaluation.metrics.metric": "EvaluationResult PerInvocationResult",
    "greenroom.evaluation.records": "AgentDetails AppDetails ConversationScenario EvalCase EvalCaseResult EvalMetric "
    "EvalMetricResult EvalMetricResultDetails EvalMetricResultPerInvocation EvalSet EvalSetResult "
    "EvalStatus IntermediateData Interval Invocation InvocationEvent MetricInfo MetricValueInfo "
    "Rubric RubricContent RubricScore RunEvalResult SessionInput",
    "greenroom.evaluation.simulation": "ConversationGenerationConfig ConversationScenarios UserBehavior UserPersona",
    "greenroom.evaluation.tool_stubs": "AgentSimulatorFactory EnvironmentSimulationConfig "
    "EnvironmentSimulationFactory EnvironmentSimulationPlugin InjectedError InjectionConfig MockStrategy "
    "ToolSimulationConfig",
    "greenroom.gates.a2a.app": "to_a2a",
    "greenroom.gates.a2a.card": "AgentCardBuilder",
    "greenroom.gates.a2a.executor": "A2aAgentExecutor A2aAgentExecutorConfig ExecuteInterceptor",
    "greenroom.gates.mcp.agent": "to_mcp_server",
    "greenroom.google_cloud.document_names": "DocumentCollections DocumentKeys",
    "greenroom.invocation.compaction": "BaseEventsSummarizer EventsCompactionConfig LlmEventSummarizer",
    "greenroom.invocation.context": "Aclosing InvocationContext",
    "greenroom.invocation.live_requests": "LiveRequestQueue",
    "greenroom.invocation.template": "inject_session_state",
    "greenroom.invocation.user_context": "CallbackContext Context ReadonlyContext ToolContext",
    "greenroom.memory.firestore": "FirestoreMemoryService",
    "greenroom.memory.in_memory": "InMemoryMemoryService",
    "greenroom.memory.postgres": "PostgresMemoryService",
    "greenroom.memory.service": "BaseMemoryService",
    "greenroom.memory.sqlite": "SqliteMemoryService",
    "greenroom.memory.vertex": "VertexAiMemoryBankService VertexAiRagMemoryService",
    "greenroom.models.anthropic.llm": "AnthropicLlm Claude",
    "greenroom.models.apigee": "ApigeeLlm",
    "greenroom.models.by_name": "LLMRegistry",
    "greenroom.models.fallback": "FallbackModel",
    "greenroom.models.gemini.llm": "Gemini",
    "greenroom.models.gemma": "Gemma Gemma3Ollama",
    "greenroom.models.langchain": "LangchainLlm",
    "greenroom.models.lite_llm": "LiteLLMClient LiteLlm",
    "greenroom.models.model": "AnthropicGenerateContentConfig BaseLlm BaseLlmConnection LlmCapabilities "
    "OpenAIGenerateContentConfig ServiceTier",
    "greenroom.models.openai.chat": "OpenAILlm",
    "greenroom.models.openai.responses": "AzureOpenAIResponsesLlm OpenAIResponsesLlm",
    "greenroom.models.retrying": "RetryingLlm",
    "greenroom.plugins.budget": "BudgetLimit BudgetPlugin",
    "greenroom.tools.mcp.declaration": "adk_to_mcp_tool_type gemini_to_json_schema",
    "greenroom.usage.prices": "Price",
    "greenroom.plugins.context_filter": "ContextFilterPlugin",
    "greenroom.plugins.debug_logging": "DebugLoggingPlugin",
    "greenroom.plugins.force_escalation": "ForceEscalationPlugin",
    "greenroom.plugins.global_instruction": "GlobalInstructionPlugin",
    "greenroom.plugins.guardrails.allow_lists": "AllowedHosts AllowedTools",
    "greenroom.plugins.guardrails.check": "GuardrailCheck",
    "greenroom.plugins.guardrails.decisions": "GuardrailDecision",
    "greenroom.plugins.guardrails.judge": "JudgeCheck",
    "greenroom.plugins.guardrails.moderation": "ModerationCheck",
    "greenroom.plugins.guardrails.patterns": "PatternCheck",
    "greenroom.plugins.guardrails.plugin": "GuardrailPlugin",
    "greenroom.plugins.logging_plugin": "LoggingPlugin",
    "greenroom.plugins.multimodal_tool_results": "MultimodalToolResultsPlugin",
    "greenroom.plugins.plugin": "BasePlugin PluginManager ToolResultClassification ToolResultClassifier",
    "greenroom.plugins.recording": "RecordingsPlugin recording_of",
    "greenroom.plugins.recordings_file": "load_recordings",
    "greenroom.plugins.reflect_retry_model": "ReflectAndRetryModelPlugin",
    "greenroom.plugins.reflect_retry_tool": "ReflectAndRetryToolPlugin TrackingScope",
    "greenroom.plugins.replay": "ReplayPlugin",
    "greenroom.plugins.retry_model": "RetryModelPlugin",
    "greenroom.plugins.save_files_as_artifacts": "SaveFilesAsArtifactsPlugin",
    "greenroom.plugins.tool_call_integrity": "ToolCallIntegrityError ToolCallIntegrityPlugin",
    "greenroom.records.auth": "AuthConfig AuthCredential AuthCredentialTypes AuthScheme AuthSchemeType HttpAuth "
    "HttpCredentials OAuth2Auth OAuthFlow OAuthFlows OpenIdConnectWithConfig ServiceAccount ServiceAccountCredential "
    "dict_to_auth_scheme openid_dict_to_scheme_credential openid_url_to_scheme_credential "
    "service_account_dict_to_scheme_credential service_account_scheme_credential token_to_scheme_credential",
    "greenroom.records.human_requests": "RequestInput",
    "greenroom.records.event": "Event EventActions EventCompaction NodeInfo ToolConfirmation UiWidget",
    "greenroom.records.listings": "ArtifactVersion ListArtifactVersionsResponse ListArtifactsResponse "
    "LoadMemoryResponse MemoryEntry SearchMemoryResponse",
    "greenroom.records.model_exchange": "ContextCacheConfig LiveRequest LlmRequest LlmResponse",
    "greenroom.records.recording": "LlmRecording Recording Recordings ToolRecording",
    "greenroom.records.approval_policy": "ApprovalPolicy",
    "greenroom.records.run_judge": "RunJudge",
    "greenroom.records.run": "RunConfig StreamingMode ToolThreadPoolConfig Webhook",
    "greenroom.records.schedule": "Schedule",
    "greenroom.records.session": "GetSessionConfig ListEventsResponse ListSessionsResponse Session",
    "greenroom.records.state": "State",
    "greenroom.redaction.findings": "Finding",
    "greenroom.redaction.patterns": "TextPattern",
    "greenroom.redaction.rules": "Redaction",
    "greenroom.runner.in_memory": "InMemoryRunner",
    "greenroom.runner.rewind": "InvocationNotFoundError",
    "greenroom.runner.runner": "Runner",
    "greenroom.server.settings": "CorsSettings",
    "greenroom.sessions.firestore": "FirestoreSessionService",
    "greenroom.sessions.from_uri": "DatabaseSessionService",
    "greenroom.sessions.in_memory": "InMemorySessionService",
    "greenroom.sessions.postgres": "PostgresSessionService",
    "greenroom.sessions.service": "BaseSessionService",
    "greenroom.sessions.sqlite": "SqliteSessionService",
    "greenroom.sessions.vertex": "VertexAiSessionService",
    "greenroom.tools.application_integration.tool": "IntegrationConnectorTool",
    "greenroom.tools.application_integration.toolset": "ApplicationIntegrationToolset",
    "greenroom.tools.bash": "BashToolPolicy ExecuteBashTool",
    "greenroom.tools.builtin.examples": "BaseExampleProvider Example ExampleTool",
    "greenroom.tools.builtin.load_artifacts": "LoadArtifactsTool load_artifacts load_artifacts_tool",
    "greenroom.tools.builtin.load_memory": "LoadMemoryTool load_memory load_memory_tool",
    "greenroom.tools.builtin.load_web_page": "load_web_page",
    "greenroom.tools.builtin.model_side": "CodeExecutionTool EnterpriseWebSearchTool GoogleMapsGroundingTool "
    "GoogleSearchTool UrlContextTool VertexAiSearchTool code_execution enterprise_web_search "
    "enterprise_web_search_tool google_maps_grounding google_search url_context",
    "greenroom.tools.builtin.preload_memory": "PreloadMemoryTool preload_memory preload_memory_tool",
    "greenroom.tools.builtin.run_control": "exit_loop get_user_choice get_user_choice_tool request_input",
    "greenroom.tools.builtin.sleep": "WaitTool wait wait_for",
    "greenroom.tools.computer_use.computer": "BaseComputer ComputerEnvironment ComputerState DownloadedFile",
    "greenroom.tools.computer_use.playwright": "PlaywrightComputer",
    "greenroom.tools.computer_use.toolset": "ComputerUseToolset",
    "greenroom.tools.computer_use.xvfb": "XvfbComputer",
    "greenroom.tools.environment": "EnvironmentToolset",
    "greenroom.tools.functions.authenticated_function_tool": "AuthenticatedFunctionTool",
    "greenroom.tools.functions.function_tool": "FunctionTool LongRunningFunctionTool",
    "greenroom.tools.google_api.tool": "GoogleApiTool",
    "greenroom.tools.google_api.toolset": "GoogleApiToolset",
    "greenroom.tools.google_api.toolsets": "CalendarToolset DocsToolset GmailToolset SheetsToolset SlidesToolset "
    "YoutubeToolset",
    "greenroom.tools.google_cloud.bigquery.config": "BigQueryCredentialsConfig BigQueryToolConfig WriteMode",
    "greenroom.tools.google_cloud.bigquery.skill": "get_bigquery_skill",
    "greenroom.tools.google_cloud.bigquery.toolset": "BigQueryToolset",
    "greenroom.tools.google_cloud.bigtable.config": "BigtableCredentialsConfig BigtableToolSettings",
    "greenroom.tools.google_cloud.bigtable.toolset": "BigtableToolset DEFAULT_BIGTABLE_TOOL_NAME_PREFIX",
    "greenroom.tools.google_cloud.capabilities": "Capabilities",
    "greenroom.tools.google_cloud.credentials_config": "BaseGoogleCredentialsConfig GoogleCredentialsManager",
    "greenroom.tools.google_cloud.data_agents": "DataAgentCredentialsConfig DataAgentToolConfig DataAgentToolset",
    "greenroom.tools.google_cloud.eventarc.bindings": "AgentProvided CloudEventAttributesBinding MISSING OMIT",
    "greenroom.tools.google_cloud.eventarc.config": "EventarcCredentialsConfig EventarcToolConfig",
    "greenroom.tools.google_cloud.eventarc.toolset": "EventarcToolset",
    "greenroom.tools.google_cloud.google_tool": "GoogleTool",
    "greenroom.tools.google_cloud.pubsub": "PubSubCredentialsConfig PubSubToolConfig PubSubToolset",
    "greenroom.tools.google_cloud.spanner.admin": "SpannerAdminToolset",
    "greenroom.tools.google_cloud.spanner.config": "APPROXIMATE_NEAREST_NEIGHBORS EXACT_NEAREST_NEIGHBORS "
    "NearestNeighborsAlgorithm QueryResultMode SpannerCredentialsConfig SpannerToolSettings "
    "SpannerVectorStoreSettings TableColumn VectorSearchIndexSettings",
    "greenroom.tools.google_cloud.spanner.toolset": "DEFAULT_SPANNER_TOOL_NAME_PREFIX SpannerToolset",
    "greenroom.tools.google_cloud.storage": "DEFAULT_GCS_TOOL_NAME_PREFIX GCSAdminToolset "
    "GCSCredentialsConfig GCSToolSettings GCSToolset",
    "greenroom.tools.mcp.connection_params": "SseConnectionParams StdioConnectionParams StdioServerParameters "
    "StreamableHTTPConnectionParams StreamableHTTPServerParams",
    "greenroom.tools.mcp.instruction_provider": "McpInstructionProvider",
    "greenroom.tools.mcp.tool": "MCPTool McpTool",
    "greenroom.tools.mcp.toolset": "MCPToolset McpToolset",
    "greenroom.tools.model_consult": "ModelConsultContextConfig ModelConsultTool",
    "greenroom.tools.openapi.rest_api_tool": "RestApiTool",
    "greenroom.tools.openapi.toolset": "OpenAPIToolset",
    "greenroom.tools.retrieval.files_retrieval": "FilesRetrieval",
    "greenroom.tools.retrieval.tool": "BaseRetrievalTool",
    "greenroom.tools.retrieval.vertex_ai_rag_retrieval": "RagResource VertexAiRagRetrieval",
    "greenroom.tools.skills.skill": "Frontmatter Resources Script Skill list_skills_in_dir list_skills_in_dir_async "
    "load_skill_from_dir load_skill_from_dir_async load_skills_from_dir load_skills_from_dir_async",
    "greenroom.tools.skills.toolset": "DEFAULT_SKILL_SYSTEM_INSTRUCTION SkillDiscoveryMode SkillLifecycleConfig "
    "SkillLifecycleMode SkillRegistry SkillToolset",
    "greenroom.tools.third_party": "CrewaiTool LangchainTool",
    "greenroom.tools.tool": "BaseTool",
    "greenroom.tools.toolset": "BaseToolset ToolPredicate",
    "greenroom.tools.workspace.commands": "CodeTool ShellTool",
    "greenroom.tools.workspace.toolset": "WorkspaceToolset",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [*sorted(_HOME_OF), "errors", "types"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in ("types", "errors"):
        return import_module(f"greenroom.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        return import_module("greenroom.adk_names").stand_in(name)
    errors = import_module("greenroom.errors")
    try:
        value = getattr(import_module(home), name)
    except errors.MissingExtra as error:
        return import_module("greenroom.stand_ins").without_extra(name, error.extra, error.package)
    if home.startswith("greenroom.records."):
        value = import_module("greenroom.records.base").public(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
