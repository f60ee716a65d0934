"""Who may use a server that a command starts."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import replace
from pathlib import Path

from greenroom.cli import data_folder
from greenroom.errors import CallerError
from greenroom.server.origin import LOOPBACK
from greenroom.server.settings import ServerSettings, ServeSettings


def closed_to_strangers(agents_dir: Path, settings: ServeSettings, listener: socket.socket) -> ServerSettings:
    """The settings with what follows from the address and from the folder. Raises CallerError rather than let in who
    isn't known."""
    server = settings.server
    folders_keys = data_folder.keys_path(agents_dir)
    if server.auth.keys is None and folders_keys.is_file():
        server = replace(server, auth=replace(server.auth, keys=str(folders_keys)))
    elif server.auth.keys is not None and not Path(server.auth.keys).is_file():
        file = server.auth.keys
        raise CallerError(f"There is no file of keys {file}; make it with: greenroom keys create --keys {file}")
    if server.auth.is_on and settings.allow_anonymous:
        raise CallerError("--allow-anonymous lets in everybody, but there are keys or tokens to ask for; take one away")
    if ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        return replace(server, allowed_hosts=(LOOPBACK, *server.allowed_hosts))
    if not server.auth.is_on and not settings.allow_anonymous:
        raise CallerError(
            f"Whoever reaches {settings.host} could use the agents and read all conversations. Make a key "
            f"(greenroom keys create {agents_dir}), or say --allow-anonymous"
        )
    return server
