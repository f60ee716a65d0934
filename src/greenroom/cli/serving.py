"""Runs `greenroom serve`, and reads its plain command lines without cyclopts.

Loading cyclopts takes half as long as starting the server, so this module doesn't import it.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from greenroom.cli import data_folder
from greenroom.cli.terminal import note, print_pieces
from greenroom.errors import CallerError, ConfigurationError
from greenroom.records.service_uri import without_password
from greenroom.server.configuration import (
    Configuration,
    all_settings,
    find_file,
    load_configuration,
)
from greenroom.server.settings import ServeSettings

if TYPE_CHECKING:
    from greenroom.apps.loader import AppLoader
    from greenroom.cli.http_server import ConnectionSource
    from greenroom.cli.server_start import StyledText
    from greenroom.encryption.key_provider import KeyProvider
    from greenroom.server.application import GreenroomApp

_log = logging.getLogger("greenroom.cli")


def serve_folder(agents_dir: Path, configuration: Configuration) -> None:
    """Serves a folder until SIGINT or SIGTERM."""
    from greenroom.cli.server_log import set_up_log
    from greenroom.cli.server_start import bound, is_loopback_listener, secured_settings, with_replica_address

    settings = configuration.settings
    workers = 1
    if settings.workers != 1:
        from greenroom.cli.workers import worker_count

        workers = worker_count(settings)
    set_up_log(settings)
    for warning in configuration.warnings:
        if settings.log_format == "json":
            _log.warning("%s", warning)
        else:
            note(warning, "yellow")

    if workers > 1:
        from greenroom.cli.workers import serve_with_workers

        serve_with_workers(agents_dir, settings, workers, origins=configuration.origins)
        return
    with bound(settings.host, settings.port) as listener:
        host, port = listener.getsockname()[:2]
        settings = secured_settings(agents_dir, settings, is_loopback=is_loopback_listener(listener))
        settings = with_replica_address(settings, host, port)
        serve(
            agents_dir,
            settings,
            listener,
            address=(host, port),
            when_started=print_pieces,
            origins=configuration.origins,
        )


def serve(
    agents_dir: Path,
    settings: ServeSettings,
    listener: socket.socket,
    *,
    address: tuple[str, int],
    when_started: Callable[[StyledText], None],
    connections: ConnectionSource | None = None,
    origins: Mapping[str, str],
) -> None:
    """Serves a folder in this process until SIGINT or SIGTERM.

    address: where clients reach it. when_started: called with the welcome text. connections: as for `run_server`.
    origins: of the settings, by key.
    """
    from greenroom.cli.http_protocol import ConnectionLimits
    from greenroom.cli.http_server import run_server
    from greenroom.cli.server_start import welcome

    with contextlib.closing(app_loader(agents_dir, settings)) as loader:
        asgi, sessions_uri = app_of_folder(agents_dir, loader, settings)
        asgi.note_origins(origins)
        failed = loader.preload()
        message = welcome(
            agents_dir,
            address,
            loader.list_apps(),
            failed,
            without_password(sessions_uri),
            asks_for_keys=settings.auth.is_on,
            url_prefix=settings.url_prefix,
        )
        run_server(
            asgi,
            listener,
            when_started=lambda: when_started(message),
            grace_seconds=math.ceil(settings.grace_seconds),
            limits=ConnectionLimits(idle_seconds=settings.idle_connection_seconds),
            connections=connections,
            # No load balancer knows a worker: its parent process gives it the connections.
            drain=asgi.drain if connections is None else partial(asgi.drain, notice_seconds=0.0),
        )


def app_of_folder(
    agents_dir: Path, loader: AppLoader, settings: ServeSettings, *, session_pool_size: int | None = None
) -> tuple[GreenroomApp, str]:
    """Makes the application with the stores that the settings name. Returns it with the URI of its sessions.

    session_pool_size: of the session store, see `session_service_from_uri`.
    """
    from greenroom.artifacts.from_uri import artifact_service_from_uri
    from greenroom.memory.from_uri import memory_service_from_uri
    from greenroom.models.embeddings_by_name import embeddings_from_name
    from greenroom.server.application import create_app
    from greenroom.sessions.from_uri import session_service_from_uri

    local_uri = data_folder.session_service_uri(agents_dir)
    sessions_uri = settings.session_service or local_uri
    keys = key_provider(settings.encryption.keys)
    sessions = session_service_from_uri(sessions_uri, pool_size=session_pool_size, keys=keys)
    if settings.session_service is None or settings.artifact_service is None or sessions.is_remote:
        data_folder.make(agents_dir)
    if sessions.is_remote:
        sessions.server_database = str(data_folder.database_path(agents_dir))

    artifacts_uri = settings.artifact_service or data_folder.artifact_service_uri(agents_dir)
    default_memory_uri = local_uri if sessions.is_remote else sessions_uri
    memory_uri = settings.memory_service or default_memory_uri
    embeddings = embeddings_from_name(settings.memory_embeddings) if settings.memory_embeddings else None

    app = create_app(
        app_loader=loader,
        session_service=sessions,
        artifact_service=artifact_service_from_uri(artifacts_uri, keys=keys),
        memory_service=memory_service_from_uri(memory_uri, embeddings=embeddings, keys=keys),
        settings=settings,
    )
    return app, sessions_uri


def plain_command_line(tokens: Sequence[str]) -> tuple[Path, dict[str, Any]] | None:
    """Reads `serve DIR --flag value …`. Returns the folder, and the flags by the settings' keys.

    None for everything else, which cyclopts reads: help, faults, `--config`, lists and unusual spellings.
    """
    if "GREENROOM_CONFIG" in os.environ:
        return None

    by_flag = {setting.flag: setting for setting in all_settings()}
    folders: list[Path] = []
    flags: dict[str, Any] = {}
    words = list(tokens)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            folders.append(Path(word))
            continue

        setting = by_flag.get(word)
        if setting is None or setting.takes_list or setting.key in flags:
            return None
        text = _pop_value(words, is_switch=setting.plain_type is bool)
        if text is None:
            return None
        try:
            flags[setting.key] = setting.convert(text, is_text=True)
        except msgspec.ValidationError:
            return None

    if len(folders) != 1:
        return None
    return folders[0], flags


def _pop_value(words: list[str], *, is_switch: bool) -> str | None:
    """Takes the value of a flag from the rest of a command line; None if cyclopts has to read it."""
    if is_switch and (not words or words[0].lower() not in ("true", "false")):
        return "true"
    if not words or words[0].startswith("-") or words[0].lower() in ("", "none", "null"):
        return None
    return words.pop(0)


def read_configuration(agents_dir: Path, file: Path | None, flags: Mapping[str, Any]) -> Configuration:
    """Loads the settings from flags, variables and a file. Raises ConfigurationError."""
    if file is None:
        file = find_file(agents_dir.expanduser(), Path())
    elif not file.is_file():
        raise ConfigurationError([f"There is no configuration file {file}"])
    return load_configuration(flags=flags, environ=os.environ, file=file)


def session_service_of(agents_dir: Path, given: str | None) -> str:
    """Returns the URI of the session store of `greenroom serve`. given: that of the command line, if any.

    Raises CallerError for a folder that doesn't exist, as when DIR is the URI of a store.
    """
    uri = given or read_configuration(agents_dir, None, {}).settings.session_service
    if uri is not None:
        return uri
    if not agents_dir.expanduser().is_dir():
        # Not named: the URI may hold a password.
        raise CallerError("The folder DIR doesn't exist. Use --session-service for the URI of a store")
    return data_folder.session_service_uri(agents_dir)


def key_provider(uri: str | None) -> KeyProvider | None:
    """The encryption keys of a setting."""
    if uri is None:
        return None
    from greenroom.encryption.from_uri import key_provider_from_uri

    return key_provider_from_uri(uri)


def configured_keys(agents_dir: Path) -> KeyProvider | None:
    """The encryption keys of the server of a folder, for commands that open its stores."""
    return key_provider(read_configuration(agents_dir, None, {}).settings.encryption.keys)


def app_loader(agents_dir: Path, settings: ServeSettings) -> AppLoader:
    if settings.build_output_dirs or settings.source_dir is not None:
        from greenroom.apps.load_built import BUILD_OUTPUT_DIRS, BuiltOutputLoader

        return BuiltOutputLoader(
            build_output_dirs=settings.build_output_dirs or BUILD_OUTPUT_DIRS,
            source_dir=agents_dir if settings.source_dir is None else settings.source_dir,
        )
    from greenroom.apps.load_directory import DirectoryAppLoader

    return DirectoryAppLoader(agents_dir, hot_reload=settings.reload)
