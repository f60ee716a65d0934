"""Providers' names in traces, which are those of OpenTelemetry's conventions where these list the provider."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from greenroom.errors import MissingExtra
from greenroom.models.anthropic.llm import AnthropicLlm, Claude
from greenroom.models.fallback import FallbackModel
from greenroom.models.gemini.llm import Gemini
from greenroom.models.local.llm import LocalLlm
from greenroom.models.model import BaseLlm
from greenroom.models.openai.chat import OpenAILlm
from greenroom.models.openai.responses import AzureOpenAIResponsesLlm
from greenroom.models.provider_names import provider_in
from greenroom.models.retrying import RetryingLlm
from greenroom.records.session import SessionKey
from greenroom.telemetry.agent_spans import ModelCallSpan
from greenroom.telemetry.span import Trace
from greenroom.testing import ScriptedModel

LISTED = {each.value for each in vars(gen_ai_attributes)["GenAiProviderNameValues"]}
OTHERS = {"local", "ollama", "ScriptedModel"}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (Gemini("gemini-2.5-flash", api_key="k", vertexai=False), "gcp.gemini"),
        (Gemini("gemini-2.5-flash", vertexai=True, project="p", location="l"), "gcp.vertex_ai"),
        (AnthropicLlm(), "anthropic"),
        (Claude(), "gcp.vertex_ai"),
        (OpenAILlm("gpt-5"), "openai"),
        (OpenAILlm("mistral/mistral-small", base_url="http://x"), "mistral_ai"),
        (OpenAILlm("meta-llama/Llama-3", base_url="http://x"), "openai"),
        (OpenAILlm("ollama/gemma3", base_url="http://x"), "ollama"),
        (AzureOpenAIResponsesLlm(), "azure.ai.openai"),
        (LocalLlm(), "local"),
        (RetryingLlm(AnthropicLlm()), "anthropic"),
        (FallbackModel([OpenAILlm("gpt-5"), AnthropicLlm()]), "openai"),
        (ScriptedModel("hi"), "ScriptedModel"),
    ],
)
def test_a_model_names_its_provider(model: BaseLlm, name: str) -> None:
    assert model.provider_name == name
    assert name in LISTED | OTHERS


def test_names_of_services_become_those_of_providers() -> None:
    assert provider_in("bedrock/anthropic.claude", default="litellm") == "aws.bedrock"
    assert provider_in("litellm/groq/llama", default="litellm") == "groq"
    assert provider_in("unknown", default="litellm") == "litellm"


def test_a_provider_that_cannot_be_found_does_not_break_the_export() -> None:
    class Missing:
        @property
        def provider_name(self) -> str:
            raise MissingExtra("openai", "openai")

    def attributes(called: Any) -> Any:
        root = Trace(SessionKey("app", "ann", "s-1"), "run").begin()
        return ModelCallSpan(root, agent_name="echo", model="m", called=called).exported_attributes()

    assert attributes(Missing())["gen_ai.provider.name"] == "gcp.vertex.agent"
