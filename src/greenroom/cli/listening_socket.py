"""The address that a server listens on."""

from __future__ import annotations

import errno
import socket

from greenroom.errors import CallerError


def bound(host: str, port: int) -> socket.socket:
    """A socket that nobody can connect to until the server listens on it. Raises CallerError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CallerError(f"There is no address {host!r} to listen on: {error.strerror}") from error
    # `localhost` stands for IPv4 and IPv6; most clients try the former.
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        if isinstance(error, PermissionError):
            raise CallerError(f"Port {port} may not be used by this user; take one above 1023 (--port 8000)") from error
        if error.errno == errno.EADDRINUSE:
            raise CallerError(f"Port {port} on {host} is in use; take another one (--port {port + 1})") from error
        raise CallerError(f"Can't listen on {host}, port {port}: {error.strerror}") from error
    return listener
