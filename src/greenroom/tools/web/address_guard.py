"""Refuses requests to private networks, such as the server's own (SSRF)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl

import httpx

from greenroom.errors import ToolError

_PRIVATE_NAMES = ("localhost",)
_PRIVATE_ENDINGS = (".localhost", ".local", ".internal")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class AddressRefused(ToolError):
    def __init__(self, host: str) -> None:
        super().__init__(
            f"{host!r} is not a public address, and calls to private networks are not allowed "
            "(allow_private_network_access)"
        )
        self.host = host


def check_host(host: str) -> IpAddress | None:
    """Checks a host without resolving it; returns its address if it is one. Raises AddressRefused."""
    name = host.lower().rstrip(".").strip("[]")
    if name in _PRIVATE_NAMES or name.endswith(_PRIVATE_ENDINGS):
        raise AddressRefused(host)

    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None

    if not is_public(address):
        raise AddressRefused(host)

    return address


async def public_addresses(host: str, port: int) -> list[str]:
    """Resolves a host. Raises AddressRefused when any of its addresses is private, OSError when it
    has none.
    """
    address = check_host(host)
    if address is not None:
        return [str(address)]

    infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)

    addresses = list(dict.fromkeys(str(info[4][0]) for info in infos))
    for text in addresses:
        if not is_public(ipaddress.ip_address(text)):
            raise AddressRefused(host)

    return addresses


def is_public(address: IpAddress) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast


class GuardedTransport(httpx.AsyncBaseTransport):
    """Connects to public addresses only, and to the very addresses that it checked: a second lookup
    may differ.
    """

    def __init__(self, verify: ssl.SSLContext | bool) -> None:
        self._inner = httpx.AsyncHTTPTransport(verify=verify, trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.raw_host.decode("ascii")
        port = request.url.port or (443 if request.url.scheme == "https" else 80)

        addresses = await public_addresses(host, port)
        for number, address in enumerate(addresses, 1):
            pinned = httpx.Request(
                request.method,
                request.url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
            try:
                return await self._inner.handle_async_request(pinned)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if number == len(addresses):
                    raise

        raise OSError(f"{host} has no address")

    async def aclose(self) -> None:
        await self._inner.aclose()
