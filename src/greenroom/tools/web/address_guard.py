"""Keeps a model from reaching into the network that the server stands in."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

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
    """Look at a host without asking a name server; returns its address if it is one. Raises AddressRefused."""
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
    """Where to connect to; connecting to one of these, not to the name, keeps a name server from changing its mind.

    Raises AddressRefused when any of the host's addresses is private, and OSError when it has none.
    """
    address = check_host(host)
    if address is not None:
        return [str(address)]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
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
