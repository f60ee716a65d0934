"""What ADK users take from `google.genai.types`, under the same names."""

from greenroom.records.content import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    FunctionResponsePart,
    MediaResolution,
    ModelContent,
    Part,
    PartialArg,
    ToolCall,
    ToolResponse,
    Transcription,
    UserContent,
    VideoMetadata,
)
from greenroom.records.generation import (
    FunctionCallingConfig,
    GenerateContentConfig,
    SafetySetting,
    ThinkingConfig,
    ToolConfig,
)
from greenroom.records.model_exchange import LiveConnectConfig
from greenroom.records.tool_declaration import FunctionDeclaration, Schema, Tool, Type
from greenroom.records.usage import FinishReason, GenerateContentResponseUsageMetadata, ModalityTokenCount

__all__ = [
    "Blob",
    "CodeExecutionResult",
    "Content",
    "ExecutableCode",
    "FileData",
    "FinishReason",
    "FunctionCall",
    "FunctionCallingConfig",
    "FunctionDeclaration",
    "FunctionResponse",
    "FunctionResponsePart",
    "GenerateContentConfig",
    "GenerateContentResponseUsageMetadata",
    "LiveConnectConfig",
    "MediaResolution",
    "ModalityTokenCount",
    "ModelContent",
    "Part",
    "PartialArg",
    "SafetySetting",
    "Schema",
    "ThinkingConfig",
    "Tool",
    "ToolCall",
    "ToolConfig",
    "ToolResponse",
    "Transcription",
    "Type",
    "UserContent",
    "VideoMetadata",
]
