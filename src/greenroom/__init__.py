"""greenroom hosts AI agents. Every public name is loaded when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from greenroom.version import __version__ as __version__

_HOMES = {
    "greenroom.agents.agent": "BaseAgent",
    "greenroom.agents.agent_tool": "AgentTool",
    "greenroom.agents.callbacks": "AfterAgentCallback AfterModelCallback AfterToolCallback BeforeAgentCallback "
    "BeforeModelCallback BeforeToolCallback OnModelErrorCallback OnToolErrorCallback",
    "greenroom.agents.config_types": "AgentRefConfig ArgumentConfig BaseAgentConfig CodeConfig",
    "greenroom.agents.llm_agent": "Agent LlmAgent",
    "greenroom.agents.node": "BaseNode RetryConfig",
    "greenroom.agents.planning": "BasePlanner BuiltInPlanner PlanReActPlanner",
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
    "greenroom.apps.load_built": "BuiltOutputLoader",
    "greenroom.apps.loader": "StaticAppLoader",
    "greenroom.artifacts.in_memory": "InMemoryArtifactService",
    "greenroom.artifacts.files": "FileArtifactService",
    "greenroom.artifacts.object_store": "GcsArtifactService ObjectStoreArtifactService",
    "greenroom.artifacts.service": "BaseArtifactService",
    "greenroom.client.async_client": "AsyncClient",
    "greenroom.client.client": "Client",
    "greenroom.client.run_stream": "RunStream",
    "greenroom.code_executors.executor": (
        "BaseCodeExecutor BuiltInCodeExecutor CodeExecutionInput CodeExecutionResult File"
    ),
    "greenroom.code_executors.process": "ExecutionResult",
    "greenroom.code_executors.unsafe_local": "UnsafeLocalCodeExecutor",
    "greenroom.credentials.in_memory": "InMemoryCredentialService",
    "greenroom.credentials.service": "BaseCredentialService",
    "greenroom.credentials.sqlite": "SqliteCredentialService",
    "greenroom.embeddings.embeddings": "BaseEmbeddings",
    "greenroom.embeddings.gemini": "GeminiEmbeddings",
    "greenroom.embeddings.local": "LocalEmbeddings",
    "greenroom.embeddings.openai": "OpenAIEmbeddings",
    "greenroom.errors": "A2AClientError AgentCardResolutionError",
    "greenroom.evaluation.agent_evaluator": "AgentEvaluator",
    "greenroom.evaluation.config": "EvalConfig",
    "greenroom.evaluation.records": "EvalSet",
    "greenroom.evaluation.tool_stubs": "AgentSimulatorFactory EnvironmentSimulationFactory EnvironmentSimulationPlugin",
    "greenroom.gates.a2a.app": "to_a2a",
    "greenroom.gates.a2a.card": "AgentCardBuilder",
    "greenroom.gates.a2a.executor": "A2aAgentExecutor A2aAgentExecutorConfig ExecuteInterceptor",
    "greenroom.invocation.compaction": "BaseEventsSummarizer EventsCompactionConfig LlmEventSummarizer",
    "greenroom.invocation.context": "InvocationContext",
    "greenroom.invocation.live_requests": "LiveRequestQueue",
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
    "greenroom.models.lite_llm": "LiteLlm",
    "greenroom.models.model": (
        "AnthropicGenerateContentConfig BaseLlm BaseLlmConnection LlmCapabilities OpenAIGenerateContentConfig "
        "ServiceTier"
    ),
    "greenroom.models.openai.chat": "OpenAILlm",
    "greenroom.models.openai.responses": "AzureOpenAIResponsesLlm OpenAIResponsesLlm",
    "greenroom.models.retrying": "RetryingLlm",
    "greenroom.plugins.budget": "BudgetLimit BudgetPlugin",
    "greenroom.usage.prices": "Price",
    "greenroom.plugins.context_filter": "ContextFilterPlugin",
    "greenroom.plugins.debug_logging": "DebugLoggingPlugin",
    "greenroom.plugins.force_escalation": "ForceEscalationPlugin",
    "greenroom.plugins.global_instruction": "GlobalInstructionPlugin",
    "greenroom.plugins.logging_plugin": "LoggingPlugin",
    "greenroom.plugins.multimodal_tool_results": "MultimodalToolResultsPlugin",
    "greenroom.plugins.plugin": "BasePlugin PluginManager ToolResultClassification ToolResultClassifier",
    "greenroom.plugins.recording": "RecordingsPlugin recording_of",
    "greenroom.plugins.reflect_retry_model": "ReflectAndRetryModelPlugin",
    "greenroom.plugins.reflect_retry_tool": "ReflectAndRetryToolPlugin",
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
    "greenroom.records.listings": "MemoryEntry",
    "greenroom.records.model_exchange": "ContextCacheConfig LiveRequest LlmRequest LlmResponse",
    "greenroom.records.run": "RunConfig StreamingMode ToolThreadPoolConfig",
    "greenroom.records.session": "GetSessionConfig Session",
    "greenroom.records.state": "State",
    "greenroom.runner.in_memory": "InMemoryRunner",
    "greenroom.runner.rewind": "InvocationNotFoundError",
    "greenroom.runner.runner": "Runner",
    "greenroom.sessions.firestore": "FirestoreSessionService",
    "greenroom.sessions.from_uri": "DatabaseSessionService",
    "greenroom.sessions.in_memory": "InMemorySessionService",
    "greenroom.sessions.postgres": "PostgresSessionService",
    "greenroom.sessions.service": "BaseSessionService",
    "greenroom.sessions.sqlite": "SqliteSessionService",
    "greenroom.sessions.vertex": "VertexAiSessionService",
    "greenroom.tools.application_integration.tool": "IntegrationConnectorTool",
    "greenroom.tools.application_integration.toolset": "ApplicationIntegrationToolset",
    "greenroom.tools.builtin.examples": "BaseExampleProvider Example ExampleTool",
    "greenroom.tools.builtin.load_artifacts": "LoadArtifactsTool load_artifacts load_artifacts_tool",
    "greenroom.tools.builtin.load_web_page": "load_web_page",
    "greenroom.tools.builtin.memory": "LoadMemoryTool PreloadMemoryTool load_memory load_memory_tool preload_memory",
    "greenroom.tools.builtin.model_side": "CodeExecutionTool EnterpriseWebSearchTool GoogleMapsGroundingTool "
    "GoogleSearchTool UrlContextTool VertexAiSearchTool code_execution enterprise_web_search google_maps_grounding "
    "google_search url_context",
    "greenroom.tools.builtin.run_control": "exit_loop get_user_choice request_input",
    "greenroom.tools.environment": "BaseEnvironment EnvironmentToolset LocalEnvironment",
    "greenroom.tools.functions.authenticated_function_tool": "AuthenticatedFunctionTool",
    "greenroom.tools.functions.function_tool": "FunctionTool LongRunningFunctionTool",
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
    "greenroom.tools.toolset": "BaseToolset",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [*sorted(_HOME_OF), "errors", "types"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in ("types", "errors"):
        return import_module(f"greenroom.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        return import_module("greenroom.adk_names").stand_in(name)
    value = getattr(import_module(home), name)
    if home.startswith("greenroom.records."):
        value = import_module("greenroom.records.base").public(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    from greenroom import errors as errors
    from greenroom import types as types
    from greenroom.agents.agent import BaseAgent as BaseAgent
    from greenroom.agents.agent_tool import AgentTool as AgentTool
    from greenroom.agents.callbacks import AfterAgentCallback as AfterAgentCallback
    from greenroom.agents.callbacks import AfterModelCallback as AfterModelCallback
    from greenroom.agents.callbacks import AfterToolCallback as AfterToolCallback
    from greenroom.agents.callbacks import BeforeAgentCallback as BeforeAgentCallback
    from greenroom.agents.callbacks import BeforeModelCallback as BeforeModelCallback
    from greenroom.agents.callbacks import BeforeToolCallback as BeforeToolCallback
    from greenroom.agents.callbacks import OnModelErrorCallback as OnModelErrorCallback
    from greenroom.agents.callbacks import OnToolErrorCallback as OnToolErrorCallback
    from greenroom.agents.config_types import AgentRefConfig as AgentRefConfig
    from greenroom.agents.config_types import ArgumentConfig as ArgumentConfig
    from greenroom.agents.config_types import BaseAgentConfig as BaseAgentConfig
    from greenroom.agents.config_types import CodeConfig as CodeConfig
    from greenroom.agents.llm_agent import Agent as Agent
    from greenroom.agents.llm_agent import LlmAgent as LlmAgent
    from greenroom.agents.node import BaseNode as BaseNode
    from greenroom.agents.node import RetryConfig as RetryConfig
    from greenroom.agents.planning import BasePlanner as BasePlanner
    from greenroom.agents.planning import BuiltInPlanner as BuiltInPlanner
    from greenroom.agents.planning import PlanReActPlanner as PlanReActPlanner
    from greenroom.agents.remote_a2a.agent import RemoteA2aAgent as RemoteA2aAgent
    from greenroom.agents.remote_a2a.config import A2aCardRequestConfig as A2aCardRequestConfig
    from greenroom.agents.remote_a2a.config import A2aRemoteAgentConfig as A2aRemoteAgentConfig
    from greenroom.agents.remote_a2a.config import CardRequestInterceptor as CardRequestInterceptor
    from greenroom.agents.remote_a2a.config import ParametersConfig as ParametersConfig
    from greenroom.agents.remote_a2a.config import RequestInterceptor as RequestInterceptor
    from greenroom.agents.transfer import TransferToAgentTool as TransferToAgentTool
    from greenroom.agents.transfer import transfer_to_agent as transfer_to_agent
    from greenroom.agents.workflow.edges import DEFAULT_ROUTE as DEFAULT_ROUTE
    from greenroom.agents.workflow.edges import START as START
    from greenroom.agents.workflow.edges import Edge as Edge
    from greenroom.agents.workflow.errors import DynamicNodeFailError as DynamicNodeFailError
    from greenroom.agents.workflow.errors import GraphValidationError as GraphValidationError
    from greenroom.agents.workflow.errors import NodeInterrupted as NodeInterrupted
    from greenroom.agents.workflow.errors import NodeTimeoutError as NodeTimeoutError
    from greenroom.agents.workflow.errors import StateSchemaError as StateSchemaError
    from greenroom.agents.workflow.errors import WorkflowConfigurationError as WorkflowConfigurationError
    from greenroom.agents.workflow.errors import WorkflowDataError as WorkflowDataError
    from greenroom.agents.workflow.function_node import FunctionNode as FunctionNode
    from greenroom.agents.workflow.nodes import JoinNode as JoinNode
    from greenroom.agents.workflow.nodes import Node as Node
    from greenroom.agents.workflow.nodes import node as node
    from greenroom.agents.workflow.workflow import Workflow as Workflow
    from greenroom.agents.workflows import LoopAgent as LoopAgent
    from greenroom.agents.workflows import ParallelAgent as ParallelAgent
    from greenroom.agents.workflows import SequentialAgent as SequentialAgent
    from greenroom.apps.app import App as App
    from greenroom.apps.app import MemoryPolicy as MemoryPolicy
    from greenroom.apps.app import ResumabilityConfig as ResumabilityConfig
    from greenroom.apps.component_registry import ComponentRegistry as ComponentRegistry
    from greenroom.apps.load_built import BuiltOutputLoader as BuiltOutputLoader
    from greenroom.apps.loader import StaticAppLoader as StaticAppLoader
    from greenroom.artifacts.files import FileArtifactService as FileArtifactService
    from greenroom.artifacts.in_memory import InMemoryArtifactService as InMemoryArtifactService
    from greenroom.artifacts.object_store import GcsArtifactService as GcsArtifactService
    from greenroom.artifacts.object_store import ObjectStoreArtifactService as ObjectStoreArtifactService
    from greenroom.artifacts.service import BaseArtifactService as BaseArtifactService
    from greenroom.client.async_client import AsyncClient as AsyncClient
    from greenroom.client.client import Client as Client
    from greenroom.client.run_stream import RunStream as RunStream
    from greenroom.code_executors.executor import BaseCodeExecutor as BaseCodeExecutor
    from greenroom.code_executors.executor import BuiltInCodeExecutor as BuiltInCodeExecutor
    from greenroom.code_executors.executor import CodeExecutionInput as CodeExecutionInput
    from greenroom.code_executors.executor import CodeExecutionResult as CodeExecutionResult
    from greenroom.code_executors.executor import File as File
    from greenroom.code_executors.process import ExecutionResult as ExecutionResult
    from greenroom.code_executors.unsafe_local import UnsafeLocalCodeExecutor as UnsafeLocalCodeExecutor
    from greenroom.credentials.in_memory import InMemoryCredentialService as InMemoryCredentialService
    from greenroom.credentials.service import BaseCredentialService as BaseCredentialService
    from greenroom.credentials.sqlite import SqliteCredentialService as SqliteCredentialService
    from greenroom.embeddings.embeddings import BaseEmbeddings as BaseEmbeddings
    from greenroom.embeddings.gemini import GeminiEmbeddings as GeminiEmbeddings
    from greenroom.embeddings.local import LocalEmbeddings as LocalEmbeddings
    from greenroom.embeddings.openai import OpenAIEmbeddings as OpenAIEmbeddings
    from greenroom.errors import A2AClientError as A2AClientError
    from greenroom.errors import AgentCardResolutionError as AgentCardResolutionError
    from greenroom.evaluation.agent_evaluator import AgentEvaluator as AgentEvaluator
    from greenroom.evaluation.config import EvalConfig as EvalConfig
    from greenroom.evaluation.records import EvalSet as EvalSet
    from greenroom.evaluation.tool_stubs import AgentSimulatorFactory as AgentSimulatorFactory
    from greenroom.evaluation.tool_stubs import EnvironmentSimulationFactory as EnvironmentSimulationFactory
    from greenroom.evaluation.tool_stubs import EnvironmentSimulationPlugin as EnvironmentSimulationPlugin
    from greenroom.gates.a2a.app import to_a2a as to_a2a
    from greenroom.gates.a2a.card import AgentCardBuilder as AgentCardBuilder
    from greenroom.gates.a2a.executor import A2aAgentExecutor as A2aAgentExecutor
    from greenroom.gates.a2a.executor import A2aAgentExecutorConfig as A2aAgentExecutorConfig
    from greenroom.gates.a2a.executor import ExecuteInterceptor as ExecuteInterceptor
    from greenroom.invocation.compaction import BaseEventsSummarizer as BaseEventsSummarizer
    from greenroom.invocation.compaction import EventsCompactionConfig as EventsCompactionConfig
    from greenroom.invocation.compaction import LlmEventSummarizer as LlmEventSummarizer
    from greenroom.invocation.context import InvocationContext as InvocationContext
    from greenroom.invocation.live_requests import LiveRequestQueue as LiveRequestQueue
    from greenroom.invocation.user_context import CallbackContext as CallbackContext
    from greenroom.invocation.user_context import Context as Context
    from greenroom.invocation.user_context import ReadonlyContext as ReadonlyContext
    from greenroom.invocation.user_context import ToolContext as ToolContext
    from greenroom.memory.firestore import FirestoreMemoryService as FirestoreMemoryService
    from greenroom.memory.in_memory import InMemoryMemoryService as InMemoryMemoryService
    from greenroom.memory.postgres import PostgresMemoryService as PostgresMemoryService
    from greenroom.memory.service import BaseMemoryService as BaseMemoryService
    from greenroom.memory.sqlite import SqliteMemoryService as SqliteMemoryService
    from greenroom.memory.vertex import VertexAiMemoryBankService as VertexAiMemoryBankService
    from greenroom.memory.vertex import VertexAiRagMemoryService as VertexAiRagMemoryService
    from greenroom.models.anthropic.llm import AnthropicLlm as AnthropicLlm
    from greenroom.models.anthropic.llm import Claude as Claude
    from greenroom.models.apigee import ApigeeLlm as ApigeeLlm
    from greenroom.models.by_name import LLMRegistry as LLMRegistry
    from greenroom.models.fallback import FallbackModel as FallbackModel
    from greenroom.models.gemini.llm import Gemini as Gemini
    from greenroom.models.gemma import Gemma as Gemma
    from greenroom.models.gemma import Gemma3Ollama as Gemma3Ollama
    from greenroom.models.langchain import LangchainLlm as LangchainLlm
    from greenroom.models.lite_llm import LiteLlm as LiteLlm
    from greenroom.models.model import AnthropicGenerateContentConfig as AnthropicGenerateContentConfig
    from greenroom.models.model import BaseLlm as BaseLlm
    from greenroom.models.model import BaseLlmConnection as BaseLlmConnection
    from greenroom.models.model import LlmCapabilities as LlmCapabilities
    from greenroom.models.model import OpenAIGenerateContentConfig as OpenAIGenerateContentConfig
    from greenroom.models.model import ServiceTier as ServiceTier
    from greenroom.models.openai.chat import OpenAILlm as OpenAILlm
    from greenroom.models.openai.responses import AzureOpenAIResponsesLlm as AzureOpenAIResponsesLlm
    from greenroom.models.openai.responses import OpenAIResponsesLlm as OpenAIResponsesLlm
    from greenroom.models.retrying import RetryingLlm as RetryingLlm
    from greenroom.plugins.budget import BudgetLimit as BudgetLimit
    from greenroom.plugins.budget import BudgetPlugin as BudgetPlugin
    from greenroom.plugins.context_filter import ContextFilterPlugin as ContextFilterPlugin
    from greenroom.plugins.debug_logging import DebugLoggingPlugin as DebugLoggingPlugin
    from greenroom.plugins.force_escalation import ForceEscalationPlugin as ForceEscalationPlugin
    from greenroom.plugins.global_instruction import GlobalInstructionPlugin as GlobalInstructionPlugin
    from greenroom.plugins.logging_plugin import LoggingPlugin as LoggingPlugin
    from greenroom.plugins.multimodal_tool_results import MultimodalToolResultsPlugin as MultimodalToolResultsPlugin
    from greenroom.plugins.plugin import BasePlugin as BasePlugin
    from greenroom.plugins.plugin import PluginManager as PluginManager
    from greenroom.plugins.plugin import ToolResultClassification as ToolResultClassification
    from greenroom.plugins.plugin import ToolResultClassifier as ToolResultClassifier
    from greenroom.plugins.recording import RecordingsPlugin as RecordingsPlugin
    from greenroom.plugins.recording import recording_of as recording_of
    from greenroom.plugins.reflect_retry_model import ReflectAndRetryModelPlugin as ReflectAndRetryModelPlugin
    from greenroom.plugins.reflect_retry_tool import ReflectAndRetryToolPlugin as ReflectAndRetryToolPlugin
    from greenroom.plugins.replay import ReplayPlugin as ReplayPlugin
    from greenroom.plugins.retry_model import RetryModelPlugin as RetryModelPlugin
    from greenroom.plugins.save_files_as_artifacts import SaveFilesAsArtifactsPlugin as SaveFilesAsArtifactsPlugin
    from greenroom.plugins.tool_call_integrity import ToolCallIntegrityError as ToolCallIntegrityError
    from greenroom.plugins.tool_call_integrity import ToolCallIntegrityPlugin as ToolCallIntegrityPlugin
    from greenroom.records.auth import AuthConfig as AuthConfig
    from greenroom.records.auth import AuthCredential as AuthCredential
    from greenroom.records.auth import AuthCredentialTypes as AuthCredentialTypes
    from greenroom.records.auth import AuthScheme as AuthScheme
    from greenroom.records.auth import AuthSchemeType as AuthSchemeType
    from greenroom.records.auth import HttpAuth as HttpAuth
    from greenroom.records.auth import HttpCredentials as HttpCredentials
    from greenroom.records.auth import OAuth2Auth as OAuth2Auth
    from greenroom.records.auth import OAuthFlow as OAuthFlow
    from greenroom.records.auth import OAuthFlows as OAuthFlows
    from greenroom.records.auth import OpenIdConnectWithConfig as OpenIdConnectWithConfig
    from greenroom.records.auth import ServiceAccount as ServiceAccount
    from greenroom.records.auth import ServiceAccountCredential as ServiceAccountCredential
    from greenroom.records.auth import dict_to_auth_scheme as dict_to_auth_scheme
    from greenroom.records.auth import openid_dict_to_scheme_credential as openid_dict_to_scheme_credential
    from greenroom.records.auth import openid_url_to_scheme_credential as openid_url_to_scheme_credential
    from greenroom.records.auth import (
        service_account_dict_to_scheme_credential as service_account_dict_to_scheme_credential,
    )
    from greenroom.records.auth import service_account_scheme_credential as service_account_scheme_credential
    from greenroom.records.auth import token_to_scheme_credential as token_to_scheme_credential
    from greenroom.records.event import Event as Event
    from greenroom.records.event import EventActions as EventActions
    from greenroom.records.event import EventCompaction as EventCompaction
    from greenroom.records.event import NodeInfo as NodeInfo
    from greenroom.records.event import ToolConfirmation as ToolConfirmation
    from greenroom.records.event import UiWidget as UiWidget
    from greenroom.records.human_requests import RequestInput as RequestInput
    from greenroom.records.listings import MemoryEntry as MemoryEntry
    from greenroom.records.model_exchange import ContextCacheConfig as ContextCacheConfig
    from greenroom.records.model_exchange import LiveRequest as LiveRequest
    from greenroom.records.model_exchange import LlmRequest as LlmRequest
    from greenroom.records.model_exchange import LlmResponse as LlmResponse
    from greenroom.records.run import RunConfig as RunConfig
    from greenroom.records.run import StreamingMode as StreamingMode
    from greenroom.records.run import ToolThreadPoolConfig as ToolThreadPoolConfig
    from greenroom.records.session import GetSessionConfig as GetSessionConfig
    from greenroom.records.session import Session as Session
    from greenroom.records.state import State as State
    from greenroom.runner.in_memory import InMemoryRunner as InMemoryRunner
    from greenroom.runner.rewind import InvocationNotFoundError as InvocationNotFoundError
    from greenroom.runner.runner import Runner as Runner
    from greenroom.sessions.firestore import FirestoreSessionService as FirestoreSessionService
    from greenroom.sessions.from_uri import DatabaseSessionService as DatabaseSessionService
    from greenroom.sessions.in_memory import InMemorySessionService as InMemorySessionService
    from greenroom.sessions.postgres import PostgresSessionService as PostgresSessionService
    from greenroom.sessions.service import BaseSessionService as BaseSessionService
    from greenroom.sessions.sqlite import SqliteSessionService as SqliteSessionService
    from greenroom.sessions.vertex import VertexAiSessionService as VertexAiSessionService
    from greenroom.tools.application_integration.tool import IntegrationConnectorTool as IntegrationConnectorTool
    from greenroom.tools.application_integration.toolset import (
        ApplicationIntegrationToolset as ApplicationIntegrationToolset,
    )
    from greenroom.tools.builtin.examples import BaseExampleProvider as BaseExampleProvider
    from greenroom.tools.builtin.examples import Example as Example
    from greenroom.tools.builtin.examples import ExampleTool as ExampleTool
    from greenroom.tools.builtin.load_artifacts import LoadArtifactsTool as LoadArtifactsTool
    from greenroom.tools.builtin.load_artifacts import load_artifacts as load_artifacts
    from greenroom.tools.builtin.load_artifacts import load_artifacts_tool as load_artifacts_tool
    from greenroom.tools.builtin.load_web_page import load_web_page as load_web_page
    from greenroom.tools.builtin.memory import LoadMemoryTool as LoadMemoryTool
    from greenroom.tools.builtin.memory import PreloadMemoryTool as PreloadMemoryTool
    from greenroom.tools.builtin.memory import load_memory as load_memory
    from greenroom.tools.builtin.memory import load_memory_tool as load_memory_tool
    from greenroom.tools.builtin.memory import preload_memory as preload_memory
    from greenroom.tools.builtin.model_side import CodeExecutionTool as CodeExecutionTool
    from greenroom.tools.builtin.model_side import EnterpriseWebSearchTool as EnterpriseWebSearchTool
    from greenroom.tools.builtin.model_side import GoogleMapsGroundingTool as GoogleMapsGroundingTool
    from greenroom.tools.builtin.model_side import GoogleSearchTool as GoogleSearchTool
    from greenroom.tools.builtin.model_side import UrlContextTool as UrlContextTool
    from greenroom.tools.builtin.model_side import VertexAiSearchTool as VertexAiSearchTool
    from greenroom.tools.builtin.model_side import code_execution as code_execution
    from greenroom.tools.builtin.model_side import enterprise_web_search as enterprise_web_search
    from greenroom.tools.builtin.model_side import google_maps_grounding as google_maps_grounding
    from greenroom.tools.builtin.model_side import google_search as google_search
    from greenroom.tools.builtin.model_side import url_context as url_context
    from greenroom.tools.builtin.run_control import exit_loop as exit_loop
    from greenroom.tools.builtin.run_control import get_user_choice as get_user_choice
    from greenroom.tools.builtin.run_control import request_input as request_input
    from greenroom.tools.environment import BaseEnvironment as BaseEnvironment
    from greenroom.tools.environment import EnvironmentToolset as EnvironmentToolset
    from greenroom.tools.environment import LocalEnvironment as LocalEnvironment
    from greenroom.tools.functions.authenticated_function_tool import (
        AuthenticatedFunctionTool as AuthenticatedFunctionTool,
    )
    from greenroom.tools.functions.function_tool import FunctionTool as FunctionTool
    from greenroom.tools.functions.function_tool import LongRunningFunctionTool as LongRunningFunctionTool
    from greenroom.tools.mcp.connection_params import SseConnectionParams as SseConnectionParams
    from greenroom.tools.mcp.connection_params import StdioConnectionParams as StdioConnectionParams
    from greenroom.tools.mcp.connection_params import StdioServerParameters as StdioServerParameters
    from greenroom.tools.mcp.connection_params import StreamableHTTPConnectionParams as StreamableHTTPConnectionParams
    from greenroom.tools.mcp.connection_params import StreamableHTTPServerParams as StreamableHTTPServerParams
    from greenroom.tools.mcp.instruction_provider import McpInstructionProvider as McpInstructionProvider
    from greenroom.tools.mcp.tool import MCPTool as MCPTool
    from greenroom.tools.mcp.tool import McpTool as McpTool
    from greenroom.tools.mcp.toolset import MCPToolset as MCPToolset
    from greenroom.tools.mcp.toolset import McpToolset as McpToolset
    from greenroom.tools.model_consult import ModelConsultContextConfig as ModelConsultContextConfig
    from greenroom.tools.model_consult import ModelConsultTool as ModelConsultTool
    from greenroom.tools.openapi.rest_api_tool import RestApiTool as RestApiTool
    from greenroom.tools.openapi.toolset import OpenAPIToolset as OpenAPIToolset
    from greenroom.tools.retrieval.files_retrieval import FilesRetrieval as FilesRetrieval
    from greenroom.tools.retrieval.tool import BaseRetrievalTool as BaseRetrievalTool
    from greenroom.tools.retrieval.vertex_ai_rag_retrieval import RagResource as RagResource
    from greenroom.tools.retrieval.vertex_ai_rag_retrieval import VertexAiRagRetrieval as VertexAiRagRetrieval
    from greenroom.tools.skills.skill import Frontmatter as Frontmatter
    from greenroom.tools.skills.skill import Resources as Resources
    from greenroom.tools.skills.skill import Script as Script
    from greenroom.tools.skills.skill import Skill as Skill
    from greenroom.tools.skills.skill import list_skills_in_dir as list_skills_in_dir
    from greenroom.tools.skills.skill import list_skills_in_dir_async as list_skills_in_dir_async
    from greenroom.tools.skills.skill import load_skill_from_dir as load_skill_from_dir
    from greenroom.tools.skills.skill import load_skill_from_dir_async as load_skill_from_dir_async
    from greenroom.tools.skills.skill import load_skills_from_dir as load_skills_from_dir
    from greenroom.tools.skills.skill import load_skills_from_dir_async as load_skills_from_dir_async
    from greenroom.tools.skills.toolset import DEFAULT_SKILL_SYSTEM_INSTRUCTION as DEFAULT_SKILL_SYSTEM_INSTRUCTION
    from greenroom.tools.skills.toolset import SkillDiscoveryMode as SkillDiscoveryMode
    from greenroom.tools.skills.toolset import SkillLifecycleConfig as SkillLifecycleConfig
    from greenroom.tools.skills.toolset import SkillLifecycleMode as SkillLifecycleMode
    from greenroom.tools.skills.toolset import SkillRegistry as SkillRegistry
    from greenroom.tools.skills.toolset import SkillToolset as SkillToolset
    from greenroom.tools.third_party import CrewaiTool as CrewaiTool
    from greenroom.tools.third_party import LangchainTool as LangchainTool
    from greenroom.tools.tool import BaseTool as BaseTool
    from greenroom.tools.toolset import BaseToolset as BaseToolset
    from greenroom.usage.prices import Price as Price
