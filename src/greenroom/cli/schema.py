"""`greenroom schema`: the JSON Schema of agents' YAML files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from greenroom.cli.terminal import note


def schema(file: Annotated[Path | None, Parameter(name="FILE")] = None, /) -> None:
    """Write the JSON Schema of agents' YAML files, for completion and validation in editors.

    Editors with a YAML language server find it by the first line of a YAML file:
    `# yaml-language-server: $schema=../agent.schema.json`

        greenroom schema agents/agent.schema.json

    Parameters
    ----------
    file
        The output file. Default: standard output.
    """
    from greenroom.apps.yaml_config.schema import config_schema

    data = msgspec.json.format(msgspec.json.encode(config_schema()), indent=2) + b"\n"
    if file is None:
        sys.stdout.write(data.decode())
    else:
        file.write_bytes(data)
        note(f"Wrote {file}")
