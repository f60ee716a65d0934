"""Addresses of this server as its clients use them: scheme, host and path, below another application and after proxies.

A proxy at 10.0.0.5 gets `https://example.com/agents/list-apps` and asks for `/list-apps`, or for `/agents/list-apps`:

    Host: 127.0.0.1:8000 · X-Forwarded-Host: example.com · X-Forwarded-Proto: https
    X-Forwarded-Prefix: /agents · X-Forwarded-For: 203.0.113.7

If 10.0.0.5 is a trusted proxy, the scope of the request becomes: path `/list-apps`, root_path
`/agents`, scheme `https`, client `203.0.113.7`, and the server's address is
`https://example.com/agents`. From any other address the headers mean nothing.

Each proxy of a chain appends to the lists in these headers, so they are read from the right: the entry that counts is
that of the outermost trusted proxy. Entries that a client has sent itself are further left, and ignored.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple
from urllib.parse import quote, unquote

from starlette.types import Scope

from greenroom.server.settings import PREFIX_PATH, ServerSettings

EVERY_PROXY = "*"

_FOR = b"x-forwarded-for"
_PROTO = b"x-forwarded-proto"
_HOST = b"x-forwarded-host"
_PREFIX = b"x-forwarded-prefix"
_FORWARDED = b"forwarded"
_HEADERS = frozenset({_FOR, _PROTO, _HOST, _PREFIX, _FORWARDED})
_name_of = itemgetter(0)

_PUBLIC_HOST = "greenroom.public_host"
"""In the scope: the host that clients use, if it isn't that of the header `Host`."""

_SCHEMES = {"ws": "http", "wss": "https"}
_VALID_HOST = re.compile(r"(?:[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?")
_VALID_PREFIX = re.compile(rf"(?:{PREFIX_PATH})/?")

# The elements of the header `Forwarded`, and the parameters of one. Source: RFC 7239, 4.
_ELEMENT = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^,"])+')
_PARAMETER = re.compile(r'(?:^|;)\s*([A-Za-z]+)=(?:"((?:[^"\\]|\\.)*)"|([^;"\s]*))')


class Address(NamedTuple):
    """The server's address as a client uses it."""

    scheme: str = "http"
    host: str = "localhost"
    prefix: str = ""
    """The path before the server's own paths, without a slash at its end; empty at the root."""

    def path(self, path: str) -> str:
        """The path on this host of one of the server's paths."""
        return self.prefix + path

    def url(self, path: str = "") -> str:
        """The URL of one of the server's paths."""
        return f"{self.scheme}://{self.host}{self.prefix}{path}"


def address_of(scope: Scope) -> Address:
    """The server's address in a scope that `RequestLocator` has returned."""
    host = public_host(scope)
    if host is None:
        host = _host_header(scope)
    scheme: str = scope.get("scheme", "http")
    return Address(_SCHEMES.get(scheme, scheme), host, scope.get("root_path", ""))


def _host_header(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"host":
            return value.decode("latin-1")
    return "localhost"


def public_address(url_prefix: str | None, *, scheme: str = "http", host: str = "localhost") -> Address:
    """The server's address outside of a request. The scheme and the host are used where `url_prefix` names none."""
    own_scheme, own_host, prefix = _parts_of(url_prefix or "")
    return Address(own_scheme or scheme, own_host or host, prefix)


def public_host(scope: Scope) -> str | None:
    """The host that a setting or a trusted proxy names; None if it is that of the header `Host`."""
    return scope.get(_PUBLIC_HOST)


class _Forwarded(NamedTuple):
    """The values of a request that trusted proxies report; None and empty for missing ones."""

    client: str | None
    scheme: str | None
    host: str | None
    prefix: str


class RequestLocator:
    """Converts a request's scope to that of a server at the root: `path` is one of the server's own paths, still
    encoded; `root_path` is the public prefix, also encoded.

    knows: True for paths of the server. It decides about a prefix that is also the beginning of one of the server's
    paths, such as `/apps`, since a proxy may remove the prefix or not.
    """

    def __init__(self, settings: ServerSettings, *, knows: Callable[[str], bool]) -> None:
        self._knows = knows
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self._scheme: str | None = None
        self._host: str | None = None
        self._prefix: str | None = None
        if settings.url_prefix is not None:
            self._scheme, self._host, self._prefix = _parts_of(settings.url_prefix)

    def locate(self, scope: Scope) -> Scope:
        """Returns a new scope."""
        # The raw path, so that an id may contain an encoded slash.
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        path = raw.partition(b"?")[0].decode("latin-1")
        mounted: str = scope.get("root_path", "")
        forwarded = self._forwarded(scope)
        if not mounted and forwarded is None and self._prefix is None:
            return {**scope, "path": path}

        if mounted:
            path = _below_mount(path, mounted, scope)
        prefix = self._prefix
        if prefix is None:
            prefix = forwarded.prefix if forwarded is not None else ""
        if prefix:
            path = self._without_prefix(path, prefix)
        located = {**scope, "path": path, "root_path": _joined(prefix, quote(mounted))}

        scheme = self._scheme
        host = self._host
        if forwarded is not None:
            scheme = scheme or forwarded.scheme
            host = host or forwarded.host
            if forwarded.client is not None:
                located["client"] = (forwarded.client, 0)
        if scheme is not None:
            located["scheme"] = scheme
        if host is not None:
            located[_PUBLIC_HOST] = host
        return located

    def _without_prefix(self, path: str, prefix: str) -> str:
        rest = _below(path, unquote(prefix))
        if rest is None or (self._knows(path) and not self._knows(rest)):
            return path  # the proxy has removed the prefix
        return rest

    def _forwarded(self, scope: Scope) -> _Forwarded | None:
        client = scope.get("client")
        if not self._proxies.trusts(client[0] if client else ""):
            return None
        if _HEADERS.isdisjoint(map(_name_of, scope["headers"])):
            return None
        headers: dict[bytes, str] = {}
        for name, value in scope["headers"]:
            if name in _HEADERS:
                text = value.decode("latin-1")
                headers[name] = f"{headers[name]},{text}" if name in headers else text

        prefixes = _listed(headers.get(_PREFIX, ""))
        # Proxies that set `X-Forwarded-…` pass on a client's own `Forwarded`.
        if _FORWARDED in headers and not headers.keys() & {_FOR, _PROTO, _HOST}:
            elements = [_parameters(element) for element in _ELEMENT.findall(headers[_FORWARDED])]
            hops = self._proxies.hops([element.get("for", "") for element in elements])
            chosen = elements[-hops] if elements else {}
            return _checked(chosen.get("for"), chosen.get("proto"), chosen.get("host"), prefixes[-hops:])
        clients = _listed(headers.get(_FOR, ""))
        hops = self._proxies.hops(clients)
        return _checked(
            _nth_last(clients, hops),
            _nth_last(_listed(headers.get(_PROTO, "")), hops),
            _nth_last(_listed(headers.get(_HOST, "")), hops),
            prefixes[-hops:],
        )


class TrustedProxies:
    """The addresses of trusted proxies, whose headers are used.

    entries: addresses, networks, or `*` for all.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._trusts_all = EVERY_PROXY in entries
        self._networks = [ipaddress.ip_network(entry, strict=False) for entry in entries if entry != EVERY_PROXY]
        self.trusts = lru_cache(maxsize=1024)(self._trusts)

    def hops(self, clients: Sequence[str]) -> int:
        """Counts the last entries that trusted proxies have written. clients: the client of each proxy."""
        count = 1
        while count < len(clients) and self.trusts(_ip_of(clients[-count]) or ""):
            count += 1
        return count

    def _trusts(self, address: str) -> bool:
        if self._trusts_all:
            return True
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return any(ip in network for network in self._networks)


def _parts_of(url_prefix: str) -> tuple[str | None, str | None, str]:
    """Scheme and host, where the setting names them, and the path."""
    scheme, separator, rest = url_prefix.partition("://")
    if not separator:
        return None, None, _normal(url_prefix)
    host, _, path = rest.partition("/")
    return scheme, host, _normal(path)


def _normal(prefix: str) -> str:
    inner = prefix.strip("/")
    return f"/{inner}" if inner else ""


def _joined(prefix: str, mounted: str) -> str:
    """The public path of an application that is mounted. A proxy that doesn't remove the prefix names the mount's."""
    return mounted if _below(mounted, prefix) is not None else prefix + mounted


def _below_mount(path: str, mounted: str, scope: Scope) -> str:
    """The rest of the path in the application that is mounted there. Starlette leaves the root path
    of its own application in front, even if a proxy has removed it from the path."""
    for start in (mounted, mounted.removeprefix(scope.get("app_root_path", ""))):
        rest = _below(path, start)
        if rest is not None:
            return rest
    return path


def _below(path: str, prefix: str) -> str | None:
    """The rest of an encoded path below a decoded prefix; None if it is not below it."""
    depth = prefix.count("/")
    segments = path.split("/", depth + 1)
    if unquote("/".join(segments[: depth + 1])) != prefix:
        return None
    return "/" + "".join(segments[depth + 1 :])


def _checked(client: str | None, scheme: str | None, host: str | None, prefixes: Sequence[str]) -> _Forwarded:
    """Removes invalid values. A prefix of several slashes would lead to another host."""
    if scheme is not None:
        scheme = _SCHEMES.get(scheme.lower(), scheme.lower())
    return _Forwarded(
        client=_ip_of(client) if client is not None else None,
        scheme=scheme if scheme in ("http", "https") else None,
        host=host if host is not None and _VALID_HOST.fullmatch(host) else None,
        prefix="".join([_normal(prefix) for prefix in prefixes if _VALID_PREFIX.fullmatch(prefix)]),
    )


def _ip_of(text: str) -> str | None:
    """The IP address in `1.2.3.4`, `1.2.3.4:567`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:567`."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


def _listed(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",") if entry.strip()]


def _nth_last(values: Sequence[str], hops: int) -> str | None:
    """The entry of the outermost trusted proxy; a proxy may have replaced the list by one value."""
    return values[-min(hops, len(values))] if values else None


def _parameters(element: str) -> dict[str, str]:
    return {
        name.lower(): re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
        for name, quoted, plain in _PARAMETER.findall(element.strip())
    }
