"""`greenroom serve`: apps behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from greenroom.cli.serving import read_configuration, serve_folder
from greenroom.cli.setting_flags import NO_FLAGS, ConfigFile, SettingFlags


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
    serve_folder(agents_dir, read_configuration(agents_dir, config, flags))
