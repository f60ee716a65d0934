"""`greenroom serve`: apps behind HTTP."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import logging
import math
import socket
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from greenroom.cli import data_folder
from greenroom.cli.setting_flags import NO_FLAGS, ConfigFile, SettingFlags, read_configuration
from greenroom.cli.terminal import is_debugging, note, output, printable
from greenroom.errors import AppLoadError, CallerError
from greenroom.server.configuration import without_password
from greenroom.server.settings import ServerSettings, ServeSettings

_log = logging.getLogger("greenroom.cli")

_LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def serve(
    agents_dir: Annotated[Path, Parameter(name="DIR")],
    /,
    *,
    config: ConfigFile = None,
    flags: SettingFlags = NO_FLAGS,
) -> None:
    """Serve the agents in a folder over HTTP, with ADK's endpoints and a web page.

    Conversations and files are kept in `DIR/.greenroom`, so they are still there after a restart; runs that a stop or a
    crash cut off go on at the next start.

    What the flags say can be said by variables and in a file, too: `--port` is `GREENROOM_PORT`, and `port` in
    `greenroom.toml`, in the folder or the current one. `greenroom config show` tells what holds.

        greenroom serve examples

        greenroom serve agents --port 9000 --session-service sqlite:///chats.db --allow-origins https://example.com

    Parameters
    ----------
    agents_dir
        Each folder in it with an `agent.py` or a `root_agent.yaml` is an app; a folder that has one itself is the only
        app.
    """
    from greenroom.apps.load_directory import DirectoryAppLoader
    from greenroom.artifacts.from_uri import artifact_service_from_uri
    from greenroom.cli.http_server import run_server
    from greenroom.memory.from_uri import memory_service_from_uri
    from greenroom.server.application import create_app
    from greenroom.sessions.from_uri import session_service_from_uri

    configuration = read_configuration(agents_dir, config, flags)
    settings = configuration.settings
    _set_up_log(settings)
    for warning in configuration.warnings:
        if settings.log_format == "json":
            _log.warning("%s", warning)
        else:
            note(warning, "yellow")
    loader = DirectoryAppLoader(agents_dir, hot_reload=settings.reload)
    with _bound(settings.host, settings.port) as listener, contextlib.closing(loader):
        if settings.session_service is None or settings.artifact_service is None:
            data_folder.make(agents_dir)
        sessions_uri = settings.session_service or data_folder.session_service_uri(agents_dir)
        sessions = session_service_from_uri(sessions_uri)
        artifacts = artifact_service_from_uri(settings.artifact_service or data_folder.artifact_service_uri(agents_dir))
        memory = memory_service_from_uri(settings.memory_service)
        server_settings = _closed_to_strangers(agents_dir, settings, listener)
        failed = loader.preload()
        asgi = create_app(
            app_loader=loader,
            session_service=sessions,
            artifact_service=artifacts,
            memory_service=memory,
            settings=server_settings,
        )
        message = _welcome(
            agents_dir,
            listener,
            loader.list_apps(),
            failed,
            without_password(sessions_uri),
            asks_for_keys=server_settings.auth.is_on,
        )
        run_server(
            asgi,
            listener,
            when_started=lambda: output.print(message),
            grace_seconds=math.ceil(settings.server.grace_seconds),
        )


def _set_up_log(settings: ServeSettings) -> None:
    from greenroom.cli.json_log import JsonFormatter
    from greenroom.cli.log_secrets import TextFormatter
    from greenroom.server.inspection import content_policy

    handler = logging.StreamHandler()
    if settings.log_format == "json":
        content = content_policy(settings.server.traced_content)
        handler.setFormatter(JsonFormatter(with_content=content.in_export))
    else:
        handler.setFormatter(TextFormatter(_LOG_FORMAT))
    logging.basicConfig(level="DEBUG" if is_debugging() else settings.log_level.upper(), handlers=[handler])


def _bound(host: str, port: int) -> socket.socket:
    """A socket that nobody can connect to until the server listens on it."""
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


def _closed_to_strangers(agents_dir: Path, settings: ServeSettings, listener: socket.socket) -> ServerSettings:
    """The settings with what follows from the address and from the folder. Raises CallerError rather than let in who
    isn't known."""
    from greenroom.server.origin import LOOPBACK

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


def _welcome(
    agents_dir: Path,
    listener: socket.socket,
    apps: list[str],
    failed: dict[str, AppLoadError],
    sessions_uri: str,
    *,
    asks_for_keys: bool,
) -> Text:
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host)
    name = "localhost" if address.is_unspecified else f"[{host}]" if address.version == 6 else str(host)
    url = f"http://{name}:{port}"
    text = Text()
    text.append("\ngreenroom", "bold green").append(f" serves {agents_dir}\n\n")
    text.append("  web page   ", "dim").append(f"{url}/\n", "bold")
    text.append("  HTTP API   ", "dim").append(f"{url}/docs\n")
    text.append("  sessions   ", "dim").append(f"{sessions_uri}\n")
    for index, app in enumerate(apps):
        text.append("  apps       " if index == 0 else " " * 13, "dim")
        if app in failed:
            text.append(f"{app}  ", "red").append(f"can't be loaded: {printable(failed[app].reason)}\n", "red")
        else:
            text.append(f"{app}\n", "green")
    if not apps:
        kinds = "a folder with an agent.py or a root_agent.yaml"
        text.append(f"  There are no apps in {agents_dir} yet: an app is {kinds}.\n", "yellow")
    if asks_for_keys:
        text.append("  access     ", "dim").append(f"with a key; for a browser: {url}/sign-in\n")
    elif not address.is_loopback:
        text.append("  Everybody who can reach this port can use the agents and read all conversations.\n", "yellow")
    return text.append("\n  Ctrl-C stops the server.\n", "dim")
