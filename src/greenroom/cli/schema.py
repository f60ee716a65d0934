"""`greenroom schema`: what may stand in agents' YAML files, for editors."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from greenroom.cli.terminal import note


def schema(file: Path | None = None, /) -> None:
    """Write the JSON Schema of agents' YAML files, so that editors complete and check them.

        greenroom schema agents/agent.schema.json

    In an editor with a YAML language server, the first line of a file then names it:
    `# yaml-language-server: $schema=../agent.schema.json`

    Parameters
    ----------
    file
        Where to write it; without one it goes to the standard output.
    """
    from greenroom.apps.yaml_config.schema import config_schema

    data = msgspec.json.format(msgspec.json.encode(config_schema()), indent=2) + b"\n"
    if file is None:
        sys.stdout.write(data.decode())
    else:
        file.write_bytes(data)
        note(f"The schema is in {file}")
