"""Resolves model names to models."""

from __future__ import annotations

import importlib
import os
import re
import sys
import threading
from collections.abc import Callable

import msgspec

from greenroom.errors import MissingExtra, ModelError, ModelNotFound
from greenroom.models.model import BaseLlm
from greenroom.models.model_errors import missing_variable
from greenroom.models.provider import is_installed

ModelFactory = Callable[[str], BaseLlm]

_VERTEX_FLAGS = ("GOOGLE_GENAI_USE_ENTERPRISE", "GOOGLE_GENAI_USE_VERTEXAI")
CLAUDE_PROJECTS = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")
CLAUDE_LOCATIONS = ("CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION")


class _ModelClass(msgspec.Struct, frozen=True):
    """A model class that is imported with its first model."""

    module: str
    name: str
    extra: str = ""
    package: str = ""
    variables: tuple[tuple[str, ...], ...] = ()
    """One of each group must be set."""

    def __call__(self, model: str) -> BaseLlm:
        return getattr(importlib.import_module(f"greenroom.models.{self.module}"), self.name)(model=model)

    def fault(self, model: str) -> str | None:
        for group in self.variables:
            if not any(os.environ.get(name) for name in group):
                return f"The model {model!r} needs the environment variable {group[-1]}"
        if is_installed(self.package):
            return None
        return MissingExtra(self.extra, self.package).detail


class _LocalModelClass(_ModelClass, frozen=True):
    def fault(self, model: str) -> str | None:
        from greenroom.models.local.files import find_model_file

        try:
            find_model_file(model)
        except ModelError as error:
            return error.detail
        return super().fault(model)


class _CompatibleServer(_ModelClass, frozen=True):
    """A server that speaks OpenAI's chat completions. `<NAME>_BASE_URL` counts before url. Some
    need no key, which is `<NAME>_API_KEY`.
    """

    url: str = ""

    def __call__(self, model: str) -> BaseLlm:
        from greenroom.models.openai.chat import OpenAILlm

        server = model.partition("/")[0].upper()
        key = os.environ.get(f"{server}_API_KEY")
        if self.variables and not key:
            raise missing_variable(f"{server}_API_KEY", model=model)

        return OpenAILlm(
            model,
            base_url=os.environ.get(f"{server}_BASE_URL") or self.url,
            api_key=key or "none",
        )


def _server(url: str, key_variable: str = "") -> _CompatibleServer:
    return _CompatibleServer(
        "openai",
        "OpenAILlm",
        "openai",
        "openai",
        ((key_variable,),) if key_variable else (),
        url,
    )


class _GeminiClass(_ModelClass, frozen=True):
    def fault(self, model: str) -> str | None:
        return (_GEMINI_ON_VERTEX if wants_vertex() else super()).fault(model)


def wants_vertex() -> bool:
    """Whether the environment sends Gemini's models to Vertex AI."""
    return any(os.environ.get(flag, "").lower() in ("1", "true") for flag in _VERTEX_FLAGS)


class _ClaudeClass(_ModelClass, frozen=True):
    """Claude at Anthropic, or on Vertex if a project is configured and no key of Anthropic's."""

    def __call__(self, model: str) -> BaseLlm:
        return self._provider()(model)

    def fault(self, model: str) -> str | None:
        return self._provider().fault(model)

    def _provider(self) -> _ModelClass:
        has_key = any(os.environ.get(name) for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"))
        is_on_vertex = not has_key and any(os.environ.get(name) for name in CLAUDE_PROJECTS)
        return _CLAUDE_ON_VERTEX if is_on_vertex else _ANTHROPIC


_OPENAI = _ModelClass("openai.chat", "OpenAILlm", "openai", "openai", (("OPENAI_API_KEY",),))
_ANTHROPIC = _ModelClass(
    "anthropic.llm", "AnthropicLlm", "anthropic", "anthropic", (("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"),)
)
_CLAUDE_ON_VERTEX = _ModelClass(
    "anthropic.llm",
    "Claude",
    "anthropic",
    "anthropic",
    (CLAUDE_PROJECTS, CLAUDE_LOCATIONS),
)
_GEMINI_ON_VERTEX = _ModelClass(
    "gemini.llm",
    "Gemini",
    "gemini",
    "google.genai",
    (("GOOGLE_CLOUD_PROJECT",),),
)
_GEMINI = _GeminiClass(
    "gemini.llm",
    "Gemini",
    "gemini",
    "google.genai",
    (("GEMINI_API_KEY", "GOOGLE_API_KEY"),),
)
_LITELLM = _ModelClass("lite_llm", "LiteLlm", "litellm", "litellm")
_GEMMA = _ModelClass("gemma", "Gemma", "gemini", "google.genai", _GEMINI.variables)
_GEMMA_OLLAMA = _ModelClass("gemma", "Gemma3Ollama", "openai", "openai")
_APIGEE = _ModelClass("apigee", "ApigeeLlm", "gemini", "google.genai", (("APIGEE_PROXY_URL",),))
_LITELLM_SERVICES = (
    "ai21|azure|azure_ai|bedrock|cohere|databricks|fireworks_ai|huggingface|litellm|ollama_chat|perplexity|sagemaker|"
    "together_ai|vertex_ai|watsonx"
)
_PATH = r"projects/.+/locations/.+/"

_PATTERNS: dict[str, ModelFactory] = {
    r"local/.+": _LocalModelClass("local.llm", "LocalLlm", "local", "xllamacpp"),
    r"openai/.+": _OPENAI,
    r"gpt-.*|o\d+(-.*)?|chatgpt-.*": _OPENAI,
    r"gemma-[1-3].*": _GEMMA,
    r"ollama/gemma3.*": _GEMMA_OLLAMA,
    r"apigee/.+": _APIGEE,
    rf"({_LITELLM_SERVICES})/.+": _LITELLM,
    r"gemini-.*|gemma-4.*|model-optimizer-.*": _GEMINI,
    r"gemini/.+|models/gem.+": _GEMINI,
    rf"{_PATH}endpoints/.+|{_PATH}publishers/google/models/gemini.+": _GEMINI_ON_VERTEX,
    r"claude-.*": _ClaudeClass("anthropic.llm", "Claude", "anthropic", variables=_ANTHROPIC.variables),
    r"anthropic/.+": _ANTHROPIC,
    r"ollama/.+": _server("http://127.0.0.1:11434/v1"),
    r"vllm/.+": _server("http://127.0.0.1:8000/v1"),
    r"groq/.+": _server("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    r"openrouter/.+": _server("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    r"deepseek/.+": _server("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    r"mistral/.+": _server("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    r"xai/.+": _server("https://api.x.ai/v1", "XAI_API_KEY"),
}
_CLASSES: dict[str, ModelFactory] = {
    "gemini": _GEMINI,
    "anthropic": _ANTHROPIC,
    "claude": _CLAUDE_ON_VERTEX,
    "openai": _OPENAI,
    "lite": _LITELLM,
    "apigee": _APIGEE,
    "gemma": _GEMMA,
    "gemma3ollama": _GEMMA_OLLAMA,
    "openairesponses": _ModelClass(
        "openai.responses", "OpenAIResponsesLlm", "openai", "openai", (("OPENAI_API_KEY",),),
    ),
    "azureopenairesponses": _ModelClass(
        "openai.responses", "AzureOpenAIResponsesLlm", "openai", "openai",
        (("AZURE_OPENAI_ENDPOINT",), ("AZURE_OPENAI_API_KEY",)),
    ),
}  # fmt: skip
"""By class name, in lower case and without `Llm`: for names as `OpenAIResponses:gpt-5`."""


class LLMRegistry:
    """Name patterns are regular expressions. A pattern registered later is tried before the earlier
    ones.
    """

    _factories: dict[str, ModelFactory] = _PATTERNS
    _classes: dict[str, ModelFactory] = _CLASSES
    _models: dict[str, BaseLlm] = {}  # noqa: RUF012

    @classmethod
    def register(cls, pattern: str | type[BaseLlm], factory: ModelFactory | None = None) -> None:
        """Registers a factory for a pattern, or a class for its `supported_models()` and for
        `<class>:<name>`.
        """
        if not isinstance(pattern, str):
            kind = pattern
            cls._classes = {**cls._classes, _class_key(kind.__name__): lambda name: kind(model=name)}
            for supported in kind.supported_models():
                cls.register(supported, lambda name: kind(model=name))
            return

        if factory is None:
            raise TypeError("register() needs a factory for a pattern")

        cls._factories = {pattern: factory, **{p: f for p, f in cls._factories.items() if p != pattern}}
        cls._models = {name: model for name, model in cls._models.items() if not re.fullmatch(pattern, name)}

    @classmethod
    def resolve(cls, name: str) -> BaseLlm:
        """The one model of this name in the process. Raises ModelNotFound, or MissingExtra for a
        provider's SDK.
        """
        model = cls._models.get(name)
        if model is None:
            model = cls.new_llm(name)
            cls._models[name] = model
        return model

    @classmethod
    def new_llm(cls, name: str) -> BaseLlm:
        """A model of its own. Raises as `resolve`."""
        factory, own_name = cls._find_factory(name)
        return factory(own_name)

    @classmethod
    def fault(cls, name: str) -> str | None:
        """Returns what a model needs on this machine and how to get it (a package, a key, its file), or None if nothing
        is missing.

        Cheap: imports no SDK, reads no model file, sends nothing. Factories registered by others are assumed to work.
        """
        try:
            factory, own_name = cls._find_factory(name)
        except ModelNotFound as error:
            return error.detail
        if isinstance(factory, _ModelClass):
            return factory.fault(own_name)
        return None

    @classmethod
    def extra_of(cls, name: str) -> str | None:
        """Returns the extra of greenroom that the model needs; None for one that needs none or isn't known."""
        try:
            factory, _ = cls._find_factory(name)
        except ModelNotFound:
            return None
        return factory.extra or None if isinstance(factory, _ModelClass) else None

    @classmethod
    def variables_of(cls, name: str) -> list[str]:
        """Returns the variables that the model needs, such as that of its key; none for one that isn't known."""
        try:
            factory, _ = cls._find_factory(name)
        except ModelNotFound:
            return []
        return [group[-1] for group in factory.variables] if isinstance(factory, _ModelClass) else []

    @classmethod
    def knows(cls, name: str) -> bool:
        try:
            cls._find_factory(name)
        except ModelNotFound:
            return False
        return True

    @classmethod
    def import_sdk(cls, name: str) -> None:
        """Starts the import of a provider's SDK in a thread, so that it is there for the first request."""
        factory = cls._find_factory(name)[0]
        package = factory.package if isinstance(factory, _ModelClass) else ""
        if package and package not in sys.modules:
            threading.Thread(target=_import, args=(package,), name=f"import {package}", daemon=True).start()

    @classmethod
    async def close(cls) -> None:
        models = cls._models
        cls._models = {}
        for model in models.values():
            await model.close()

    @classmethod
    def _find_factory(cls, name: str) -> tuple[ModelFactory, str]:
        """The factory, and the name that it is to be given."""
        for pattern, factory in cls._factories.items():
            if re.fullmatch(pattern, name):
                return factory, name

        class_name, _, own_name = name.partition(":")
        if own_name and (factory := cls._classes.get(_class_key(class_name))) is not None:
            return factory, own_name

        patterns = [_readable(pattern) for pattern in cls._factories]
        if "/" in name:
            patterns.append(f"litellm/{name} if LiteLLM knows it")

        raise ModelNotFound(name, patterns)


def _class_key(name: str) -> str:
    return name.lower().removesuffix("llm")


def _readable(pattern: str) -> str:
    for regex, word in ((r"\d+", "N"), (".+", "…"), (".*", "…"), ("(-…)?", ""), ("|", ", ")):
        pattern = pattern.replace(regex, word)
    return pattern


def _import(package: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        pass  # the first request reports it
