"""Names of providers in traces, as OpenTelemetry's conventions for generative AI list them."""

from __future__ import annotations

from collections.abc import Mapping

ANTHROPIC = "anthropic"
AZURE_OPENAI = "azure.ai.openai"
GEMINI = "gcp.gemini"
OPENAI = "openai"
VERTEX_AI = "gcp.vertex_ai"

_BY_SERVICE: Mapping[str, str] = {
    "anthropic": ANTHROPIC,
    "azure": AZURE_OPENAI,
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "gemini": GEMINI,
    "groq": "groq",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "ollama": "ollama",
    "ollama_chat": "ollama",
    "openai": OPENAI,
    "openrouter": "openrouter",
    "perplexity": "perplexity",
    "vertex_ai": VERTEX_AI,
    "vllm": "vllm",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""By the service in front of a model's name, as in `groq/…`. Those that the conventions don't list keep their names."""


def provider_in(model: str, *, default: str) -> str:
    """The provider of a model by the service in front of its name; `default` if there is none that is known."""
    return _BY_SERVICE.get(model.removeprefix("litellm/").partition("/")[0], default)
