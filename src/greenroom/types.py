"""Names that ADK users take from `google.genai.types`; each is loaded on first use.

Names without a record of ours are those of that package, where it is installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from greenroom.records.genai_types import PACKAGE, record_named, record_names


def __getattr__(name: str) -> Any:
    if name == "__all__":
        return __dir__()
    value = import_module("greenroom.records.base").public(record_named(name))
    if value is None and not name.startswith("_"):
        value = _of_package(name)
    if value is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _of_package(name: str) -> Any:
    """A name that has no record, from google.genai itself where it is installed."""
    try:
        return getattr(import_module(PACKAGE), name, None)
    except ImportError:
        return None


def __dir__() -> list[str]:
    return record_names()


if TYPE_CHECKING:
    from greenroom.records.answer_metadata import Citation as Citation
    from greenroom.records.answer_metadata import CitationMetadata as CitationMetadata
    from greenroom.records.answer_metadata import FinishReason as FinishReason
    from greenroom.records.answer_metadata import (
        GenerateContentResponseUsageMetadata as GenerateContentResponseUsageMetadata,
    )
    from greenroom.records.answer_metadata import GroundingChunk as GroundingChunk
    from greenroom.records.answer_metadata import GroundingChunkMaps as GroundingChunkMaps
    from greenroom.records.answer_metadata import GroundingChunkRetrievedContext as GroundingChunkRetrievedContext
    from greenroom.records.answer_metadata import GroundingChunkWeb as GroundingChunkWeb
    from greenroom.records.answer_metadata import GroundingMetadata as GroundingMetadata
    from greenroom.records.answer_metadata import GroundingSupport as GroundingSupport
    from greenroom.records.answer_metadata import LogprobsResult as LogprobsResult
    from greenroom.records.answer_metadata import LogprobsResultCandidate as LogprobsResultCandidate
    from greenroom.records.answer_metadata import LogprobsResultTopCandidates as LogprobsResultTopCandidates
    from greenroom.records.answer_metadata import ModalityTokenCount as ModalityTokenCount
    from greenroom.records.answer_metadata import SearchEntryPoint as SearchEntryPoint
    from greenroom.records.answer_metadata import Segment as Segment
    from greenroom.records.content import ActivityEnd as ActivityEnd
    from greenroom.records.content import ActivityStart as ActivityStart
    from greenroom.records.content import Blob as Blob
    from greenroom.records.content import CodeExecutionResult as CodeExecutionResult
    from greenroom.records.content import Content as Content
    from greenroom.records.content import ExecutableCode as ExecutableCode
    from greenroom.records.content import FileData as FileData
    from greenroom.records.content import FunctionCall as FunctionCall
    from greenroom.records.content import FunctionResponse as FunctionResponse
    from greenroom.records.content import FunctionResponsePart as FunctionResponsePart
    from greenroom.records.content import ModelContent as ModelContent
    from greenroom.records.content import Part as Part
    from greenroom.records.content import PartialArg as PartialArg
    from greenroom.records.content import PartMediaResolution as PartMediaResolution
    from greenroom.records.content import ToolCall as ToolCall
    from greenroom.records.content import ToolResponse as ToolResponse
    from greenroom.records.content import Transcription as Transcription
    from greenroom.records.content import UserContent as UserContent
    from greenroom.records.content import VideoMetadata as VideoMetadata
    from greenroom.records.generation import FunctionCallingConfig as FunctionCallingConfig
    from greenroom.records.generation import GenerateContentConfig as GenerateContentConfig
    from greenroom.records.generation import LiveConnectConfig as LiveConnectConfig
    from greenroom.records.generation import SafetySetting as SafetySetting
    from greenroom.records.generation import ThinkingConfig as ThinkingConfig
    from greenroom.records.generation import ToolConfig as ToolConfig
    from greenroom.records.model_options import ActivityHandling as ActivityHandling
    from greenroom.records.model_options import ApiKeyConfig as ApiKeyConfig
    from greenroom.records.model_options import AudioTranscriptionConfig as AudioTranscriptionConfig
    from greenroom.records.model_options import AutomaticActivityDetection as AutomaticActivityDetection
    from greenroom.records.model_options import AutomaticFunctionCallingConfig as AutomaticFunctionCallingConfig
    from greenroom.records.model_options import AvatarConfig as AvatarConfig
    from greenroom.records.model_options import Behavior as Behavior
    from greenroom.records.model_options import BlockedReason as BlockedReason
    from greenroom.records.model_options import ComputerUse as ComputerUse
    from greenroom.records.model_options import ContextWindowCompressionConfig as ContextWindowCompressionConfig
    from greenroom.records.model_options import DynamicRetrievalConfig as DynamicRetrievalConfig
    from greenroom.records.model_options import DynamicRetrievalConfigMode as DynamicRetrievalConfigMode
    from greenroom.records.model_options import EndSensitivity as EndSensitivity
    from greenroom.records.model_options import EnterpriseWebSearch as EnterpriseWebSearch
    from greenroom.records.model_options import Environment as Environment
    from greenroom.records.model_options import FileSearch as FileSearch
    from greenroom.records.model_options import FunctionCallingConfigMode as FunctionCallingConfigMode
    from greenroom.records.model_options import FunctionResponseScheduling as FunctionResponseScheduling
    from greenroom.records.model_options import GenerateImagesConfig as GenerateImagesConfig
    from greenroom.records.model_options import GenerationConfigRoutingConfig as GenerationConfigRoutingConfig
    from greenroom.records.model_options import GoogleMaps as GoogleMaps
    from greenroom.records.model_options import GoogleSearch as GoogleSearch
    from greenroom.records.model_options import GoogleSearchRetrieval as GoogleSearchRetrieval
    from greenroom.records.model_options import HarmBlockMethod as HarmBlockMethod
    from greenroom.records.model_options import HarmBlockThreshold as HarmBlockThreshold
    from greenroom.records.model_options import HarmCategory as HarmCategory
    from greenroom.records.model_options import HistoryConfig as HistoryConfig
    from greenroom.records.model_options import HttpOptions as HttpOptions
    from greenroom.records.model_options import HttpRetryOptions as HttpRetryOptions
    from greenroom.records.model_options import ImageConfig as ImageConfig
    from greenroom.records.model_options import Language as Language
    from greenroom.records.model_options import LatLng as LatLng
    from greenroom.records.model_options import MediaModality as MediaModality
    from greenroom.records.model_options import MediaResolution as MediaResolution
    from greenroom.records.model_options import Modality as Modality
    from greenroom.records.model_options import ModelArmorConfig as ModelArmorConfig
    from greenroom.records.model_options import ModelSelectionConfig as ModelSelectionConfig
    from greenroom.records.model_options import MultiSpeakerVoiceConfig as MultiSpeakerVoiceConfig
    from greenroom.records.model_options import Outcome as Outcome
    from greenroom.records.model_options import PartMediaResolutionLevel as PartMediaResolutionLevel
    from greenroom.records.model_options import PersonGeneration as PersonGeneration
    from greenroom.records.model_options import PrebuiltVoiceConfig as PrebuiltVoiceConfig
    from greenroom.records.model_options import ProactivityConfig as ProactivityConfig
    from greenroom.records.model_options import RagRetrievalConfig as RagRetrievalConfig
    from greenroom.records.model_options import RagRetrievalConfigFilter as RagRetrievalConfigFilter
    from greenroom.records.model_options import RealtimeInputConfig as RealtimeInputConfig
    from greenroom.records.model_options import ReplicatedVoiceConfig as ReplicatedVoiceConfig
    from greenroom.records.model_options import Retrieval as Retrieval
    from greenroom.records.model_options import RetrievalConfig as RetrievalConfig
    from greenroom.records.model_options import SafetyFilterLevel as SafetyFilterLevel
    from greenroom.records.model_options import SessionResumptionConfig as SessionResumptionConfig
    from greenroom.records.model_options import SlidingWindow as SlidingWindow
    from greenroom.records.model_options import SpeakerVoiceConfig as SpeakerVoiceConfig
    from greenroom.records.model_options import SpeechConfig as SpeechConfig
    from greenroom.records.model_options import StartSensitivity as StartSensitivity
    from greenroom.records.model_options import ThinkingLevel as ThinkingLevel
    from greenroom.records.model_options import ToolCodeExecution as ToolCodeExecution
    from greenroom.records.model_options import TrafficType as TrafficType
    from greenroom.records.model_options import TranslationConfig as TranslationConfig
    from greenroom.records.model_options import TurnCoverage as TurnCoverage
    from greenroom.records.model_options import UrlContext as UrlContext
    from greenroom.records.model_options import VertexAISearch as VertexAISearch
    from greenroom.records.model_options import VertexAISearchDataStoreSpec as VertexAISearchDataStoreSpec
    from greenroom.records.model_options import VertexRagStore as VertexRagStore
    from greenroom.records.model_options import VertexRagStoreRagResource as VertexRagStoreRagResource
    from greenroom.records.model_options import VoiceActivityType as VoiceActivityType
    from greenroom.records.model_options import VoiceConfig as VoiceConfig
    from greenroom.records.tool_declaration import FunctionDeclaration as FunctionDeclaration
    from greenroom.records.tool_declaration import Schema as Schema
    from greenroom.records.tool_declaration import Tool as Tool
    from greenroom.records.tool_declaration import Type as Type
