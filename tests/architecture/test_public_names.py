"""Public names, at the paths from which users import them."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest

import greenroom
from greenroom import types
from greenroom.adk_names import AdkName, adk_names
from greenroom.errors import NotOffered

STUB = Path(greenroom.__file__).with_suffix(".pyi").read_text()

ADK_NAMES = {
    "Agent", "AgentTool", "App", "ApplicationIntegrationToolset", "BaseAgent", "BaseArtifactService", "BaseLlm",
    "BaseLlmConnection", "BaseMemoryService", "Frontmatter", "McpTool", "McpToolset", "OpenAPIToolset", "RestApiTool",
    "Skill", "SkillToolset", "SseConnectionParams", "StdioConnectionParams", "StdioServerParameters",
    "StreamableHTTPConnectionParams", "load_skill_from_dir",
    "BaseSessionService", "BaseTool", "BaseToolset", "CallbackContext", "Event", "EventActions", "EventCompaction",
    "FunctionTool", "GetSessionConfig", "InMemoryArtifactService", "InMemoryMemoryService", "InMemoryRunner",
    "InMemorySessionService", "InvocationContext", "LLMRegistry", "LiveRequest", "LiveRequestQueue", "LlmAgent", "LlmRequest",
    "LlmResponse", "LongRunningFunctionTool", "MemoryEntry", "ReadonlyContext", "RunConfig", "Runner", "Session",
    "SqliteSessionService", "State", "StreamingMode", "ToolConfirmation", "ToolContext",
}  # fmt: skip

GENAI_TYPES = {
    "Blob", "CodeExecutionResult", "Content", "ExecutableCode", "FileData", "FinishReason", "FunctionCall",
    "FunctionDeclaration", "FunctionResponse", "GenerateContentConfig", "GenerateContentResponseUsageMetadata",
    "ModelContent", "Part", "SafetySetting", "Schema", "ThinkingConfig", "Tool", "Type", "UserContent",
}  # fmt: skip


def test_every_public_name_can_be_imported() -> None:
    for name in greenroom.__all__:
        value = getattr(greenroom, name)
        assert value is getattr(importlib.import_module("greenroom"), name), name
        assert name in dir(greenroom), name


def test_type_checkers_see_the_names_that_are_loaded_and_from_the_same_place() -> None:
    seen = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.parse(STUB).body
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "greenroom.version")
        for alias in node.names
    }
    loaded = {name: (home, name) for name, home in greenroom._HOME_OF.items()}
    assert seen == {**loaded, "errors": ("greenroom", "errors"), "types": ("greenroom", "types")}
    assert sorted(seen) == sorted(greenroom.__all__)


def test_a_name_of_adk_can_be_mentioned() -> None:
    """0.6, 0.10, 0.11, 0.12, 0.13: loaded when it is asked for, and an error only where it is used."""
    names = [
        "BuiltInCodeExecutor", "UnsafeLocalCodeExecutor", "ContainerCodeExecutor", "VertexAiCodeExecutor",
        "GkeCodeExecutor", "AgentEngineSandboxCodeExecutor", "CodeExecutorContext", "PluginManager",
        "ReflectAndRetryModelPlugin", "ToolCallIntegrityPlugin", "ToolCallIntegrityError", "ForceEscalationPlugin",
        "AuthSchemeType", "OpenIdConnectWithConfig", "AgentEvaluator", "SlackRunner", "NodeInfo",
    ]  # fmt: skip
    for name in names:
        assert getattr(greenroom, name) is not None, name


def test_names_of_adk_are_there() -> None:
    assert set(greenroom.__all__) >= ADK_NAMES


def test_names_of_google_genai_types_are_there() -> None:
    assert set(types.__all__) >= GENAI_TYPES
    assert sorted(types.__all__) == types.__all__
    for name in types.__all__:
        assert hasattr(types, name)


def test_parts_are_made_as_in_google_genai() -> None:
    assert types.Part.from_text(text="a") == types.Part(text="a")
    assert types.Part.from_bytes(data=b"x", mime_type="image/png").inline_data == types.Blob(
        data=b"x", mime_type="image/png"
    )
    assert types.Part.from_uri(file_uri="gs://b/f", mime_type="text/plain").file_data == types.FileData(
        file_uri="gs://b/f", mime_type="text/plain"
    )
    assert types.Part.from_function_call(name="f", args={"a": 1}).function_call == types.FunctionCall(
        name="f", args={"a": 1}
    )
    assert types.Part.from_function_response(name="f", response={"r": 1}).function_response == types.FunctionResponse(
        name="f", response={"r": 1}
    )


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'LlmAgnet'"):
        greenroom.LlmAgnet  # noqa: B018


def test_names_of_adk_are_exported_as_the_table_says() -> None:
    """Rows 0.1 to 0.13 of ADK: also names that are missing can be imported, and say why when they are used."""
    for adk_name in adk_names().values():
        assert (adk_name.name in greenroom.__all__) is (adk_name.missing_because is None), adk_name.name
        is_package = adk_name.name == "telemetry"  # a command of ADK, a package of greenroom
        if adk_name.missing_because is not None and not is_package:
            _check_stand_in(adk_name)


def test_missing_errors_of_adk_can_be_caught() -> None:
    with pytest.raises(ValueError, match="other"):
        try:
            raise ValueError("other")
        except greenroom.StaleSessionError:
            pass


def test_missing_constants_of_adk_are_refused_where_they_are_used() -> None:
    name = greenroom.ADK_CONTEXT_ID_PREFIX
    for use in (lambda: name + "key", lambda: "key" + name, lambda: f"{name}", lambda: list(name)):
        with pytest.raises(NotOffered, match="ADK_CONTEXT_ID_PREFIX"):
            use()


def _check_stand_in(adk_name: AdkName) -> None:
    """Can be named, subclassed and used in isinstance; raises NotOffered when it is called or read."""
    stand_in = getattr(greenroom, adk_name.name)
    subclass = type("Subclass", (stand_in,), {})
    assert not isinstance("text", stand_in)

    for use in (stand_in, subclass, lambda: stand_in.anything):
        with pytest.raises(NotOffered, match=adk_name.name):
            use()


WITHOUT_EXTRAS = """
import importlib.abc
import sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def _packages_of_extras() -> set[str]:
    """Modules of packages that `pip install greenroom` alone doesn't bring."""
    needed = set[str]()
    waiting = ["greenroom"]
    while waiting:
        name = _normalized(waiting.pop())
        if name in needed:
            continue
        needed.add(name)
        with suppress(metadata.PackageNotFoundError):
            waiting += [one for one in metadata.requires(name) or () if "extra ==" not in one]
    homes = metadata.packages_distributions()
    return {module for module, packages in homes.items() if not needed & {_normalized(one) for one in packages}}


def _normalized(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def test_all_names_can_be_imported_without_extras() -> None:
    blocked = _packages_of_extras()
    assert {"a2a", "google", "httpx", "mcp", "openai"} <= blocked
    assert not blocked & {"msgspec", "starlette"}
    script = (
        WITHOUT_EXTRAS.replace("{blocked}", repr(blocked))
        + """
from greenroom import *
import greenroom
from greenroom.errors import MissingExtra

class MyClient(Client):
    pass

assert not isinstance(LlmAgent(name="a"), (RemoteA2aAgent, MyClient))
for use, extra in (
    (RemoteA2aAgent, "a2a"), (to_a2a, "a2a"), (AgentCardBuilder, "a2a"), (RequestInterceptor, "a2a"),
    (Client, "client"), (MyClient, "client"), (to_mcp_server, "mcp"), (lambda: Client.connect, "client"),
):
    try:
        use()
    except MissingExtra as error:
        assert error.extra == extra, error
    else:
        raise AssertionError(use)
print(len([name for name in greenroom.__all__ if name in globals()]))
"""
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(greenroom.__all__)


def test_unknown_name_is_no_attribute() -> None:
    assert not hasattr(greenroom, "NameThatNobodyHas")
