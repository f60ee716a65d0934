"""Names of spans and of their attributes.

Source: ADK's tracing, which its web UI reads, and the OpenTelemetry semantic conventions for generative AI.
"""

from __future__ import annotations

SCOPE = "gcp.vertex.agent"
"""Name of the tracer, and prefix of ADK's own attributes."""

INVOCATION = "invocation"
INVOKE_AGENT = "invoke_agent"
INVOKE_WORKFLOW = "invoke_workflow"
INVOKE_NODE = "invoke_node"
CALL_LLM = "call_llm"
EXECUTE_TOOL = "execute_tool"
SEND_DATA = "send_data"
MERGED_TOOLS = "(merged tools)"

INVOCATION_ID = "gcp.vertex.agent.invocation_id"
SESSION_ID = "gcp.vertex.agent.session_id"
EVENT_ID = "gcp.vertex.agent.event_id"
LLM_REQUEST = "gcp.vertex.agent.llm_request"
LLM_RESPONSE = "gcp.vertex.agent.llm_response"
TOOL_CALL_ARGS = "gcp.vertex.agent.tool_call_args"
TOOL_RESPONSE = "gcp.vertex.agent.tool_response"
DATA = "gcp.vertex.agent.data"

OPERATION = "gen_ai.operation.name"
SYSTEM = "gen_ai.system"
AGENT_NAME = "gen_ai.agent.name"
AGENT_DESCRIPTION = "gen_ai.agent.description"
WORKFLOW_NAME = "gen_ai.workflow.name"
CONVERSATION_ID = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TOOL_NAME = "gen_ai.tool.name"
TOOL_DESCRIPTION = "gen_ai.tool.description"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
