"""The start of `greenroom serve`: binds the address, checks the access, and writes the welcome text."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import socket
from dataclasses import replace
from pathlib import Path

from greenroom.cli import data_folder
from greenroom.cli.terminal import printable
from greenroom.errors import AppLoadError, CallerError
from greenroom.records.service_uri import is_postgres
from greenroom.server.addresses import public_address
from greenroom.server.cross_origin import LOOPBACK
from greenroom.server.settings import ServeSettings

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None

_log = logging.getLogger("greenroom.cli")


def bound(host: str, port: int, *, flag: str = "--port {}") -> socket.socket:
    """Returns a bound socket that doesn't listen yet. Raises CallerError.

    flag: the option that sets the port, for error messages.
    """
    try:
        candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CallerError(f"Can't listen on {host!r}: {error.strerror}") from error

    # `localhost` is both IPv4 and IPv6; most clients try IPv4 first.
    family, kind, protocol, _, address = min(candidates, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        if isinstance(error, PermissionError):
            raise CallerError(f"You may not listen on port {port}. Use one above 1023 ({flag.format(8000)})") from error
        if error.errno == errno.EADDRINUSE:
            raise CallerError(f"Port {port} on {host} is in use. Use another one ({flag.format(port + 1)})") from error
        raise CallerError(f"Can't listen on {host}, port {port}: {error.strerror}") from error
    return listener


def is_loopback_listener(listener: socket.socket) -> bool:
    """True if only this machine can connect to the socket."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def secured_settings(agents_dir: Path, settings: ServeSettings, *, is_loopback: bool | None) -> ServeSettings:
    """Completes the settings from the address and the folder. Raises CallerError for unprotected access.

    is_loopback: True if only this machine can connect; None if the address isn't known, which only logs a warning.
    """
    folders_keys = data_folder.keys_path(agents_dir)
    if settings.auth.keys is None and folders_keys.is_file():
        settings = replace(settings, auth=replace(settings.auth, keys=str(folders_keys)))
    elif (file := settings.auth.keys) is not None and not is_postgres(file) and not Path(file).is_file():
        raise CallerError(f"The key file {file} doesn't exist. Create it with: greenroom keys create --keys {file}")
    if settings.auth.is_on and settings.allow_anonymous:
        raise CallerError(
            "--allow-anonymous gives everyone access, but keys or tokens are configured. Remove one of them"
        )

    create_a_key = f"Create a key (greenroom keys create {agents_dir} --user NAME)"
    is_access_configured = settings.auth.is_on or settings.allow_anonymous
    grpc_host = (settings.a2a_grpc or "localhost:").rpartition(":")[0]
    if not is_access_configured and grpc_host not in ("localhost", "127.0.0.1", "[::1]"):
        raise CallerError(
            f"Anyone who can reach {grpc_host} could use the agents. {create_a_key}, or set --allow-anonymous"
        )

    if is_loopback:
        return replace(settings, allowed_hosts=(LOOPBACK, *settings.allowed_hosts))
    if not is_access_configured and is_loopback is None:
        _log.warning(
            "anyone who can reach this server can use the agents and read all sessions. %s, or set "
            "GREENROOM_ALLOW_ANONYMOUS=true if a proxy or the platform checks callers",
            create_a_key,
        )
    elif not is_access_configured:
        raise CallerError(
            f"Anyone who can reach {settings.host} could use the agents and read all sessions. "
            f"{create_a_key}, or set --allow-anonymous"
        )
    if settings.edit and not settings.auth.is_on:
        reached = "the server" if is_loopback is None else settings.host
        raise CallerError(f"With --edit, anyone who can reach {reached} could change the agents. {create_a_key}")
    return settings


def allow_many_files() -> None:
    """Raises the limit of open files to the maximum: each connection needs one."""
    if resource is not None:
        _, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (maximum, maximum))


def with_replica_address(settings: ServeSettings, host: str, port: int) -> ServeSettings:
    """Completes `replica_address` for a session store that several servers may use.

    host: the IP address to listen on.
    """
    if settings.replica_address is not None or not is_postgres(settings.session_service or ""):
        return settings
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        with contextlib.suppress(OSError):  # this machine's name has no address: then it is the only machine
            address = ipaddress.ip_address(socket.gethostbyname(socket.gethostname()))
    return replace(settings, replica_address=f"http://{_host_name(address)}:{port}")


StyledText = list[tuple[str, str]]
"""Pieces of text with their styles."""


def welcome(
    agents_dir: Path,
    address: tuple[str, int],
    apps: list[str],
    failed: dict[str, AppLoadError],
    sessions_uri: str,
    *,
    asks_for_keys: bool,
    url_prefix: str | None = None,
) -> StyledText:
    """Returns the text that a started server prints: its addresses, its stores and its apps.

    address: the IP address and the port.
    """
    host = ipaddress.ip_address(address[0])
    url = public_address(url_prefix, scheme="http", host=f"{_host_name(host)}:{address[1]}").url()

    text: StyledText = [
        ("\ngreenroom", "bold green"),
        (f" serves {agents_dir}\n\n", ""),
        ("  web page   ", "dim"),
        (f"{url}/\n", "bold"),
        ("  HTTP API   ", "dim"),
        (f"{url}/docs\n", ""),
        ("  sessions   ", "dim"),
        (f"{sessions_uri}\n", ""),
    ]
    text += _list_of_apps(agents_dir, apps, failed)
    if asks_for_keys:
        text.append(("  access     ", "dim"))
        text.append((f"with a key; for a browser: {url}/sign-in\n", ""))
    elif not host.is_loopback:
        text.append(("  Anyone who can reach this port can use the agents and read all sessions.\n", "yellow"))
    text.append(("\n  Ctrl-C stops the server.\n", "dim"))
    return text


def _host_name(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Returns the host for a URL on this machine."""
    if address.is_unspecified:
        return "localhost"
    return f"[{address}]" if address.version == 6 else str(address)


def _list_of_apps(agents_dir: Path, apps: list[str], failed: dict[str, AppLoadError]) -> StyledText:
    if not apps:
        kinds = "a folder with an agent.py or a root_agent.yaml"
        return [(f"  There are no apps in {agents_dir} yet. An app is {kinds}.\n", "yellow")]

    text: StyledText = []
    label = "  apps       "
    for app in apps:
        text.append((label, "dim"))
        label = " " * len(label)
        if app in failed:
            text.append((f"{app}  ", "red"))
            text.append((f"failed to load: {printable(failed[app].reason)}\n", "red"))
        else:
            text.append((f"{app}\n", "green"))
    return text
