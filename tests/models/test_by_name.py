"""Models by name: patterns, and what keeps a model from working on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import ModelNotFound
from greenroom.models.by_name import LLMRegistry
from greenroom.testing.scripted_model import ScriptedModel
from tests.server.conftest import Serve
from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve
from tests.server.conftest import store as store


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without keys and model files, and as it was afterwards."""
    monkeypatch.setattr(LLMRegistry, "_factories", dict(LLMRegistry._factories))
    monkeypatch.setattr(LLMRegistry, "_models", {})
    monkeypatch.setenv("GREENROOM_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


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
