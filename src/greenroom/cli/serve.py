"""`greenroom serve`: apps behind HTTP."""

from __future__ import annotations

import contextlib
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli import data_folder
from greenroom.cli.setting_flags import NO_FLAGS, ConfigFile, SettingFlags, read_configuration
from greenroom.cli.terminal import note, output
from greenroom.server.configuration import without_password

if TYPE_CHECKING:
    from greenroom.apps.loader import AppLoader
    from greenroom.server.settings import ServeSettings

_log = logging.getLogger("greenroom.cli")


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
        Each folder in it with an `agent.py` or a `root_agent.yaml` is an app, in folders of folders too: `team/desk` is
        the app `team.desk`. A folder that has one itself is the only app.
    """
    from greenroom.artifacts.from_uri import artifact_service_from_uri
    from greenroom.cli.http_protocol import ConnectionLimits
    from greenroom.cli.http_server import run_server
    from greenroom.cli.listening_socket import bound
    from greenroom.cli.server_access import closed_to_strangers
    from greenroom.cli.server_log import set_up_log
    from greenroom.cli.welcome import welcome
    from greenroom.memory.from_uri import memory_service_from_uri
    from greenroom.server.application import create_app
    from greenroom.sessions.from_uri import session_service_from_uri

    configuration = read_configuration(agents_dir, config, flags)
    settings = configuration.settings
    set_up_log(settings)
    for warning in configuration.warnings:
        if settings.log_format == "json":
            _log.warning("%s", warning)
        else:
            note(warning, "yellow")
    loader = _app_loader(agents_dir, settings)
    with bound(settings.host, settings.port) as listener, contextlib.closing(loader):
        if settings.session_service is None or settings.artifact_service is None:
            data_folder.make(agents_dir)
        sessions_uri = settings.session_service or data_folder.session_service_uri(agents_dir)
        sessions = session_service_from_uri(sessions_uri)
        artifacts = artifact_service_from_uri(settings.artifact_service or data_folder.artifact_service_uri(agents_dir))
        memory = memory_service_from_uri(settings.memory_service)
        server_settings = closed_to_strangers(agents_dir, settings, listener)
        asgi = create_app(
            app_loader=loader,
            session_service=sessions,
            artifact_service=artifacts,
            memory_service=memory,
            settings=server_settings,
        )
        failed = loader.preload()
        message = welcome(
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
            limits=ConnectionLimits(idle_seconds=settings.idle_connection_seconds),
        )


def _app_loader(agents_dir: Path, settings: ServeSettings) -> AppLoader:
    if settings.build_output_dirs or settings.source_dir is not None:
        from greenroom.apps.load_built import BUILD_OUTPUT_DIRS, BuiltOutputLoader

        return BuiltOutputLoader(
            build_output_dirs=settings.build_output_dirs or BUILD_OUTPUT_DIRS,
            source_dir=agents_dir if settings.source_dir is None else settings.source_dir,
        )
    from greenroom.apps.load_directory import DirectoryAppLoader

    return DirectoryAppLoader(agents_dir, hot_reload=settings.reload)
