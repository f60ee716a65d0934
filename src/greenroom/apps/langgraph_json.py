"""Reads `langgraph.json`, the file in which projects of LangGraph name their graphs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple, cast

import msgspec

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonObject

LANGGRAPH_FILE = "langgraph.json"


class GraphLocation(NamedTuple):
    """The module of a graph, relative to the folder, and the graph's name in it."""

    module: str
    variable: str


def find_graph(folder: Path) -> GraphLocation:
    """The graph of a folder with a `langgraph.json`. Of several, the one that is named as the folder, or `agent`.

    Raises AgentConfigError.
    """
    file = folder / LANGGRAPH_FILE
    try:
        settings = msgspec.json.decode(file.read_bytes(), type=JsonObject)
    except msgspec.DecodeError as error:
        raise AgentConfigError(f"{file.name} is not valid JSON: {error}") from error

    given: object = settings.get("graphs")
    if not isinstance(given, dict) or not given:
        raise AgentConfigError(f"{file.name} names no graphs")
    graphs = cast("JsonObject", given)

    if len(graphs) == 1:
        name = next(iter(graphs))
    else:
        name = next((one for one in (folder.name, "agent") if one in graphs), "")
    if not name:
        raise AgentConfigError(
            f"{file.name} names the graphs {', '.join(graphs)}, and an app has one: name it {folder.name!r} or 'agent' "
            "there, or give each a folder with an agent.py that imports it as root_agent"
        )

    entry: object = graphs[name]
    if isinstance(entry, dict):
        entry = cast("JsonObject", entry).get("path")
    path, _, variable = str(entry).rpartition(":")
    if not path:
        raise AgentConfigError(f"{file.name}: the graph {name!r} is {entry!r}; expected 'path/to/file.py:variable'")
    return GraphLocation(_module_of(path), variable)


def _module_of(path: str) -> str:
    if not path.endswith(".py"):
        return path
    parts = PurePosixPath(path).with_suffix("").parts
    if ".." in parts or path.startswith("/"):
        raise AgentConfigError(f"{LANGGRAPH_FILE}: {path} is outside of the app's folder")
    return ".".join(parts).removesuffix(".__init__")


def called(graph: object) -> object:
    """The graph that a function makes; other objects as they are. The function may take a configuration, which is
    empty.
    """
    if not inspect.isfunction(graph):
        return graph
    make = cast("Callable[..., object]", graph)
    made = make({}) if inspect.signature(make).parameters else make()
    if inspect.isawaitable(made):
        raise AgentConfigError(f"{LANGGRAPH_FILE}: {graph.__name__} is a coroutine; an app needs its graph at once")
    return made
