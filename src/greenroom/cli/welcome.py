"""What a server says in the terminal when it has started."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path

from greenroom.cli.terminal import printable
from greenroom.errors import AppLoadError


def welcome(
    agents_dir: Path,
    listener: socket.socket,
    apps: list[str],
    failed: dict[str, AppLoadError],
    sessions_uri: str,
    *,
    asks_for_keys: bool,
) -> list[tuple[str, str]]:
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    name = "localhost" if address.is_unspecified else f"[{host}]" if address.version == 6 else str(host)
    url = f"http://{name}:{port}"
    text: list[tuple[str, str]] = []
    text += [("\ngreenroom", "bold green"), (f" serves {agents_dir}\n\n", "")]
    text += [("  web page   ", "dim"), (f"{url}/\n", "bold")]
    text += [("  HTTP API   ", "dim"), (f"{url}/docs\n", "")]
    text += [("  sessions   ", "dim"), (f"{sessions_uri}\n", "")]
    for index, app in enumerate(apps):
        text.append(("  apps       " if index == 0 else " " * 13, "dim"))
        if app in failed:
            text += [(f"{app}  ", "red"), (f"can't be loaded: {printable(failed[app].reason)}\n", "red")]
        else:
            text.append((f"{app}\n", "green"))
    if not apps:
        kinds = "a folder with an agent.py or a root_agent.yaml"
        text.append((f"  There are no apps in {agents_dir} yet: an app is {kinds}.\n", "yellow"))
    if asks_for_keys:
        text += [("  access     ", "dim"), (f"with a key; for a browser: {url}/sign-in\n", "")]
    elif not address.is_loopback:
        text.append(("  Everybody who can reach this port can use the agents and read all conversations.\n", "yellow"))
    return [*text, ("\n  Ctrl-C stops the server.\n", "dim")]
