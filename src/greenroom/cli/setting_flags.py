"""A flag for every setting of the server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

from cyclopts import Parameter

from greenroom.server.setting_table import Setting, setting_rows
from greenroom.server.settings import ServeSettings


def flag_for(setting: Setting) -> Any:
    is_list = setting.takes_list
    parameter = Parameter(
        name=setting.flag,
        help=f"{setting.help} [default: {setting.default_in_words}]",
        negative=None if setting.plain_type is bool else "",
        consume_multiple=is_list,
    )
    return Annotated[setting.plain_type, parameter]


# A command line can be read by others, so no secret is taken from it.
_WITH_FLAG = [row for row in setting_rows(ServeSettings) if not row.is_secret]

if TYPE_CHECKING:
    SettingFlags: TypeAlias = Mapping[str, Any]
else:
    # Only the flags that are given are in it, by the settings' dotted keys.
    SettingFlags = Annotated[
        TypedDict("SettingFlags", {row.dotted: flag_for(row) for row in _WITH_FLAG}, total=False),
        Parameter(name="*"),
    ]

NO_FLAGS: Mapping[str, Any] = {}

ConfigFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--config",
        env_var="GREENROOM_CONFIG",
        help="The configuration file, instead of `greenroom.toml` in the folder or the current one.",
    ),
]
