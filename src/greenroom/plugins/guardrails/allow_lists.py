"""Lists of the tools that agents may call, and of the hosts that may be named in arguments. All others are refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import ClassVar, cast
from urllib.parse import urlsplit

from greenroom.errors import AgentConfigError
from greenroom.plugins.guardrails.check import Action, GuardrailCheck, Where
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.tool import BaseTool

_OWN_TOOLS = frozenset({"transfer_to_agent", "set_model_response", "finish_task"})
"""Tools by which an agent answers, which do nothing outside of the run."""

_ADDRESS_ARGUMENTS = ("url", "uri", "host", "hostname", "endpoint", "domain", "website")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,20}:[\\/]{2}[^\s\"'<>`|)}\]]*")
_SCHEMES = frozenset({"http", "https", "ws", "wss", "ftp", "ftps", "sftp", "ssh", "git", "grpc", "grpcs"})
_NO_HOST = re.compile(r"[\\\x00-\x20\x7f]")
"""Characters that URL parsers read differently."""


class AllowedTools(GuardrailCheck):
    """Refuses calls of all tools whose name fits none of the names; `*` in a name matches any characters."""

    places: ClassVar[tuple[Where, ...]] = ("tool_arguments",)
    reads_text = False

    def __init__(
        self, allowed: Collection[str], *, on_violation: Action | None = None, name: str = "allowed_tools"
    ) -> None:
        super().__init__(name, on_violation=on_violation)
        self._allowed = _checked(allowed, name)

    def refuse_call(self, tool: BaseTool, args: JsonObject) -> str | None:
        if tool.name in _OWN_TOOLS or any(fnmatchcase(tool.name, pattern) for pattern in self._allowed):
            return None
        return "the tool is not allowed"


class AllowedHosts(GuardrailCheck):
    """Refuses calls whose arguments name a host that isn't listed: in URLs anywhere in a text, and in the arguments
    `address_arguments` without a scheme too.

    allowed: `example.com`, which does not include its subdomains; `*.example.com`, which is all of them.
    """

    places: ClassVar[tuple[Where, ...]] = ("tool_arguments",)
    reads_text = False

    def __init__(
        self,
        allowed: Collection[str],
        *,
        address_arguments: Iterable[str] = _ADDRESS_ARGUMENTS,
        on_violation: Action | None = None,
        name: str = "allowed_hosts",
    ) -> None:
        super().__init__(name, on_violation=on_violation)
        self._allowed = [_ascii(host) for host in _checked(allowed, name)]
        self._address_arguments = frozenset(argument.lower() for argument in address_arguments)

    def refuse_call(self, tool: BaseTool, args: JsonObject) -> str | None:
        if all(self._allows(key, value) for key, value in args.items()):
            return None
        return "an argument names a host that is not allowed"

    def _allows(self, key: str, value: JsonValue) -> bool:
        if isinstance(value, dict):
            fields = cast("JsonObject", value)
            return all(self._allows(name, item) and self._allows_text("", name) for name, item in fields.items())
        if isinstance(value, list):
            return all(self._allows(key, item) for item in cast("list[JsonValue]", value))
        return not isinstance(value, str) or self._allows_text(key, value)

    def _allows_text(self, key: str, text: str) -> bool:
        urls = _URL.findall(text)
        address = text.strip()
        if address.startswith(("//", "\\\\", "/\\", "\\/")):
            urls.append(f"https:{address}")
        elif key.lower() in self._address_arguments and address and not urls and not address.startswith("/"):
            urls.append(f"https://{address}")
        return all(self._allows_url(url) for url in urls)

    def _allows_url(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
            host = _ascii(parts.hostname or "")
            parts.port  # noqa: B018 - raises ValueError for a port that is no number
        except ValueError:
            return False
        if _NO_HOST.search(parts.netloc) or "\\" in url.partition("?")[0] or parts.scheme.lower() not in _SCHEMES:
            return False
        return bool(host) and any(_fits(host, pattern) for pattern in self._allowed)


def _checked(allowed: Collection[str], name: str) -> list[str]:
    if isinstance(allowed, str) or not all(allowed):
        raise AgentConfigError(f"{name} takes a list of names, none of them empty")
    return list(allowed)


def _ascii(host: str) -> str:
    """The host as in DNS. Raises ValueError."""
    host = host.lower().removesuffix(".")
    return host if host.isascii() else host.encode("idna").decode()


def _fits(host: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    return host == pattern
