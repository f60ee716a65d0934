"""Hook of the build: refuses to build a wheel or a source distribution without the dev UI."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PAGE = Path("src/greenroom/server/dev_ui/index.html")


class DevUiIsBuilt(BuildHookInterface[Any]):
    """A source distribution contains the built dev UI, so that building a wheel from it needs no node."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or (Path(self.root) / _PAGE).is_file():
            return
        self.app.abort(f"The dev UI is not built: {_PAGE} is missing. `make build` builds it and the package.")
