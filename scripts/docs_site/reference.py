"""Pages of the reference that are made from the code: the command line, HTTP operations, the Python API."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

import greenroom
from greenroom.cli.commands import app
from greenroom.server.application import GATES
from greenroom.server.endpoint import Endpoint
from greenroom.server.endpoints import ENDPOINTS, SOCKETS
from greenroom.server.openapi import build_openapi

Json = dict[str, Any]
"""A part of the OpenAPI document."""

_RECORDS = "records.md"

_LESS_RELEVANT = "---\nsearch: {boost: 0.5}\n---"
"""Lists the pages that people write first in the results of a search."""


def reference_pages() -> dict[str, str]:
    """The text of each page by its path in the folder of the reference."""
    return {
        "command-line.md": _command_line(),
        **{f"http/{name}": text for name, text in http_pages(build_openapi(_endpoints(), SOCKETS)).items()},
        **{f"python/{name}": text for name, text in python_pages().items()},
    }


def _command_line() -> str:
    """Leaves out the table of contents, which every page of the site has at its side."""
    with patch.object(sys, "argv", ["greenroom"]):  # cyclopts shows the program that runs, which is MkDocs
        text = app.generate_docs()
    text = text.replace("# greenroom", "# Command line", 1)
    return re.sub(r"^## Table of Contents\n.*?(?=^\*\*Commands)", "", text, count=1, flags=re.DOTALL | re.MULTILINE)


# HTTP


def _endpoints() -> tuple[Endpoint, ...]:
    """Those of the server and of all gates."""
    gates = [import_module(module).ENDPOINTS for module in GATES.values()]
    return (*ENDPOINTS, *chain.from_iterable(gates))


def http_pages(document: Json) -> dict[str, str]:
    """One page for each tag, one for WebSockets, and one for the records of requests and responses."""
    pages: dict[str, str] = {}
    for tag in document["tags"]:
        sections = [
            _operation(document, method, path, operation)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
            if tag["name"] in operation["tags"] and "x-alias-of" not in operation
        ]
        if sections:
            heading = f"# {_title(tag['name'])}"
            pages[f"{_slug(tag['name'])}.md"] = _joined([_LESS_RELEVANT, heading, tag["description"], *sections])

    sockets = [_socket(socket) for socket in document["x-websockets"]]
    pages["websockets.md"] = _joined([_LESS_RELEVANT, "# WebSockets", *sockets])

    records = [_record(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    pages[_RECORDS] = _joined([_LESS_RELEVANT, "# Records", "JSON of requests and responses.", *records])
    return pages


def _operation(document: Json, method: str, path: str, operation: Json) -> str:
    aliases = [
        f"`{other}`"
        for other, operations in document["paths"].items()
        for operation_of_other in operations.values()
        if operation_of_other.get("x-alias-of") == path and operation_of_other["summary"] == operation["summary"]
    ]
    return _joined(
        [
            f"## `{method.upper()} {path}`",
            f"{operation['summary']}.",
            f"The same as {', '.join(dict.fromkeys(aliases))}." if aliases else "",
            _scopes(operation),
            _parameters(operation.get("parameters", ())),
            _body(operation),
            _responses(document, operation),
        ]
    )


def _socket(socket: Json) -> str:
    aliases = ", ".join(f"`{alias}`" for alias in socket.get("aliases", ()))
    return _joined(
        [
            f"## `{socket['path']}`",
            f"{socket['summary']}.",
            f"The same as {aliases}." if aliases else "",
            _scopes(socket),
            _parameters(socket.get("parameters", ())),
        ]
    )


def _scopes(operation: Json) -> str:
    schemes = [scopes for scheme in operation.get("security", ()) for scopes in scheme.values()]
    scopes = dict.fromkeys(f"`{scope}`" for names in schemes for scope in names)
    return f"Scope: {', '.join(scopes)}." if scopes else ""


def _parameters(parameters: Iterable[Json]) -> str:
    rows = [
        (
            f"`{one['name']}`",
            one["in"],
            _type(one["schema"]),
            one.get("description", ""),
        )
        for one in parameters
    ]
    return _table(("parameter", "in", "type", ""), rows)


def _body(operation: Json) -> str:
    content: Json = operation.get("requestBody", {}).get("content", {})
    bodies = [f"{_type(media.get('schema', {}))} as `{kind}`" for kind, media in content.items()]
    return f"Body: {' or '.join(bodies)}." if bodies else ""


def _responses(document: Json, operation: Json) -> str:
    rows: list[tuple[str, str, str]] = []
    for status, response in operation["responses"].items():
        name = response.get("$ref", "").rpartition("/")[2]
        found: Json = document["components"]["responses"][name] if name else response
        errors = [f"`{error}`" for media in found.get("content", {}).values() for error in media.get("examples", ())]
        if name:
            rows.append((status, _link("Problem"), ", ".join(dict.fromkeys(errors))))
        else:
            bodies = [
                f"{_type(media.get('schema', {}))} as `{kind}`" for kind, media in found.get("content", {}).items()
            ]
            rows.append((status, " or ".join(bodies), found.get("description", "")))
    return _table(("status", "body", ""), rows)


def _record(name: str, schema: Json) -> str:
    required: list[str] = schema.get("required", [])
    rows = [
        (
            f"`{field}`" + (" (required)" if field in required else ""),
            _type(value),
            value.get("description", ""),
        )
        for field, value in schema.get("properties", {}).items()
    ]
    whole = "" if "properties" in schema else _type(schema)
    return _joined([f"## {name}", schema.get("description", ""), whole, _table(("field", "type", ""), rows)])


def _type(schema: Json) -> str:
    """The type in words, with links to records. Null is left out: an optional field may always be null."""
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])

    choices: list[Json] = schema.get("anyOf") or schema.get("oneOf") or []
    named = [_type(choice) for choice in choices if choice.get("type") != "null"]
    if named:
        return " or ".join(dict.fromkeys(named))

    if "enum" in schema:
        return " ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(_type(item) for item in schema['prefixItems'])}]"
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"

    kind: str | list[str] = schema.get("type", "any JSON")
    return kind if isinstance(kind, str) else " or ".join(name for name in kind if name != "null")


def _link(record: str) -> str:
    return f"[{record}]({_RECORDS}#{record.lower()})"


# Python


_NAMES_OF_A_PAGE = 25
"""A package with more names has pages for its larger parts."""


def python_pages() -> dict[str, str]:
    """Pages of the names that `greenroom` exports, by package; mkdocstrings fills them in."""
    stub = Path(greenroom.__file__).with_suffix(".pyi")
    packages: dict[str, list[str]] = {}
    for statement in ast.parse(stub.read_text()).body:
        module = statement.module if isinstance(statement, ast.ImportFrom) else None
        if module and module.startswith("greenroom."):
            assert isinstance(statement, ast.ImportFrom)
            package = module.split(".")[1]
            if package != "version":
                packages.setdefault(package, []).extend(f"{module}.{alias.name}" for alias in statement.names)

    return {
        f"{_slug(title)}.md": _python_page(title, paths)
        for package, names in sorted(packages.items())
        for title, paths in _parts(package, names).items()
    }


def _parts(package: str, paths: list[str]) -> dict[str, list[str]]:
    """The names of a package by title. The page of a large one keeps the names of parts that have only a few."""
    if len(paths) <= _NAMES_OF_A_PAGE:
        return {package: paths}

    by_part: dict[str, list[str]] = {}
    for path in paths:
        by_part.setdefault(path.split(".")[2], []).append(path)
    parts: dict[str, list[str]] = {package: []}
    for part, names in sorted(by_part.items()):
        title = package if len(names) < 4 else f"{package} {part}"
        parts.setdefault(title, []).extend(names)
    return parts


def _python_page(title: str, paths: list[str]) -> str:
    return _joined(
        [
            _LESS_RELEVANT,
            f"# {_title(title)}",
            "Import these names from `greenroom`.",
            *(f"::: {path}" for path in sorted(paths, key=lambda path: path.rpartition(".")[2].lower())),
        ]
    )


# Markdown


def _title(name: str) -> str:
    spelled = {"a2a": "A2A", "mcp": "MCP", "openapi": "OpenAPI", "google": "Google", "api": "API", "llm": "LLM"}
    words = [spelled.get(word, word) for word in re.split("[ _]", name)]
    return f"{words[0][:1].upper()}{words[0][1:]} {' '.join(words[1:])}".strip()


def _slug(name: str) -> str:
    return name.lower().replace(" ", "-").replace("_", "-")


def _joined(paragraphs: Iterable[str]) -> str:
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [_row(row) for row in rows]
    return "\n".join([_row(head), _row("---" for _ in head), *lines]) if lines else ""


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
