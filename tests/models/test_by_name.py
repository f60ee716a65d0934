"""Models by name: patterns, and what keeps a model from working on this machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import MissingExtra, ModelError, ModelNotFound
from greenroom.models.anthropic.llm import AnthropicLlm, Claude
from greenroom.models.by_name import LLMRegistry
from greenroom.models.openai.chat import OpenAILlm
from greenroom.models.openai.responses import OpenAIResponsesLlm
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from tests.server.conftest import Serve
from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve
from tests.server.conftest import store as store

KEYS = {
    "OPENAI_API_KEY": "gpt-5",
    "GOOGLE_API_KEY": "gemini-3-pro",
    "ANTHROPIC_API_KEY": "claude-opus-5",
    "GROQ_API_KEY": "groq/llama",
    "OPENROUTER_API_KEY": "openrouter/some/model",
    "DEEPSEEK_API_KEY": "deepseek/deepseek-chat",
    "MISTRAL_API_KEY": "mistral/large",
    "XAI_API_KEY": "xai/grok",
}


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without keys and model files, and as it was afterwards."""
    monkeypatch.setattr(LLMRegistry, "_factories", dict(LLMRegistry._factories))
    monkeypatch.setattr(LLMRegistry, "_models", {})
    monkeypatch.setenv("GREENROOM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(LLMRegistry, "_classes", dict(LLMRegistry._classes))
    for name in (*KEYS, "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)


def test_the_newest_pattern_that_matches_wins() -> None:
    LLMRegistry.register(r"gpt-.*", lambda name: ScriptedModel([], model=f"mine/{name}"))
    assert LLMRegistry.resolve("gpt-9").model == "mine/gpt-9"
    assert LLMRegistry.resolve("gpt-9") is LLMRegistry.resolve("gpt-9")
    assert LLMRegistry.fault("gpt-9") is None


def test_a_fault_names_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fault = LLMRegistry.fault
    assert "greenroom models pull smollm2-135m" in (fault("local/smollm2-135m") or "")
    assert "/nowhere.gguf" in (fault("local//nowhere.gguf") or "")
    assert "Known name patterns: local/smollm2-135m" in (fault("local/gpt-17") or "")
    assert "OPENAI_API_KEY" in (fault("o3-mini") or "")
    assert "Known name patterns" in (fault("no-such-model") or "")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    (tmp_path / "toy.gguf").write_bytes(b"GGUF")
    assert fault("gpt-4o") is None
    assert fault(f"local/{tmp_path}/toy.gguf") is None
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert "greenroom[openai]" in (fault("gpt-4o") or "")
    assert "greenroom[local]" in (fault(f"local/{tmp_path}/toy.gguf") or "")


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ModelNotFound, match="'no-such-model'"):
        LLMRegistry.resolve("no-such-model")


@pytest.mark.parametrize(
    ("model", "code", "detail"),
    [
        ("no-such-model", "ModelNotFound", "Known name patterns"),
        ("local/smollm2-135m", "ModelError", "greenroom models pull smollm2-135m"),
    ],
)
async def test_a_client_gets_a_5xx_for_a_model_that_the_server_lacks(
    serve: Serve, model: str, code: str, detail: str
) -> None:
    server = await serve(LlmAgent(name="clerk", model=model))
    await server.new_session("clerk")
    reply = await server.run("clerk")
    assert (reply.status_code, reply.json()["code"]) == (500, code)
    assert detail in reply.json()["detail"]


@pytest.mark.parametrize(("variable", "name"), KEYS.items())
def test_each_provider_names_its_key(monkeypatch: pytest.MonkeyPatch, variable: str, name: str) -> None:
    assert LLMRegistry.fault(name) == f"The model {name!r} needs the environment variable {variable}"
    monkeypatch.setenv(variable, "secret")
    assert LLMRegistry.fault(name) is None
    assert LLMRegistry.resolve(name).model == name


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("gpt-5", "openai", "openai"),
        ("OpenAIResponses:gpt-5", "openai", "openai"),
        ("AzureOpenAIResponses:gpt-5", "openai", "openai"),
        ("ollama/llama3.2", "openai", "openai"),
        ("ollama/gemma3:4b", "openai", "openai"),
        ("groq/llama", "openai", "openai"),
        ("claude-opus-5", "anthropic", "anthropic"),
        ("anthropic/claude", "anthropic", "anthropic"),
        ("gemini-3-pro", "google.genai", "gemini"),
        ("gemma-3-4b", "google.genai", "gemini"),
        ("apigee/gemini-3-pro", "google.genai", "gemini"),
        ("bedrock/nova", "litellm", "litellm"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for variable in (*KEYS, "APIGEE_PROXY_URL", "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_KEY"):
        monkeypatch.setenv(variable, "secret")
    with pytest.raises(MissingExtra) as caught:
        LLMRegistry.new_llm(name)
    assert str(caught.value) == f"{package} is not installed; get it with: pip install 'greenroom[{extra}]'"
    assert LLMRegistry.fault(name) == str(caught.value)


async def test_servers_get_their_own_key_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-openai")
    with pytest.raises(ModelError, match="GROQ_API_KEY"):
        LLMRegistry.resolve("groq/llama")
    monkeypatch.setenv("GROQ_API_KEY", "of-groq")
    monkeypatch.setenv("VLLM_BASE_URL", "http://gpu:9000/v1")
    expected = {
        "groq/llama": ("of-groq", "https://api.groq.com/openai/v1/"),
        "ollama/qwen3": ("none", "http://127.0.0.1:11434/v1/"),
        "vllm/qwen3": ("none", "http://gpu:9000/v1/"),
    }
    for name, (key, url) in expected.items():
        model = LLMRegistry.resolve(name)
        assert isinstance(model, OpenAILlm)
        client = await model.load()
        assert (client.api_key, str(client.base_url)) == (key, url)
        assert model.service_name(LlmRequest(model=name)) == name.partition("/")[2]
    await LLMRegistry.close()


def test_a_bare_claude_is_on_vertex_where_a_project_is_set_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "desk")
    assert "GOOGLE_CLOUD_LOCATION" in (LLMRegistry.fault("claude-opus-5") or "")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "eu")
    assert LLMRegistry.fault("claude-opus-5") is None
    assert type(LLMRegistry.resolve("claude-opus-5")) is Claude
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    assert type(LLMRegistry.new_llm("claude-opus-5")) is AnthropicLlm


def test_gemini_on_vertex_needs_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    assert "GOOGLE_CLOUD_PROJECT" in (LLMRegistry.fault("gemini-3-pro") or "")
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "desk")
    assert LLMRegistry.fault("gemini-3-pro") is None


def test_classes_by_name() -> None:
    model = LLMRegistry.resolve("OpenAIResponsesLlm:my/model")
    assert (type(model), model.model) == (OpenAIResponsesLlm, "my/model")
    assert type(LLMRegistry.resolve("claude:opus")) is Claude

    class Parrot(ScriptedModel):
        def __init__(self, model: str) -> None:
            super().__init__([], model=model)

        @classmethod
        def supported_models(cls) -> list[str]:
            return [r"parrot-.*"]

    LLMRegistry.register(Parrot)
    assert type(LLMRegistry.resolve("parrot-9")) is Parrot
    assert LLMRegistry.resolve("Parrot:grey").model == "grey"


def test_an_sdk_is_imported_in_a_thread_when_an_app_names_its_model() -> None:
    script = (
        "import os, sys, threading\n"
        "os.environ['OPENAI_API_KEY'] = 'secret'\n"
        "from greenroom import App, LlmAgent, StaticAppLoader\n"
        "loader = StaticAppLoader([App(name='desk', root_agent=LlmAgent(name='desk', model=MODEL))])\n"
        "loader.preload()\n"
        "importing = [t for t in threading.enumerate() if t.name == 'import openai']\n"
        "for thread in importing: thread.join()\n"
        "print(len(importing), 'openai' in sys.modules, 'anthropic' in sys.modules)\n"
    )
    for model, expected in (("gpt-5", "1 True False"), ("local/none", "0 False False")):
        done = subprocess.run(
            [sys.executable, "-c", script.replace("MODEL", repr(model))], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected
