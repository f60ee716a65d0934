"""Where a server's log goes, and in which form."""

from __future__ import annotations

import logging

from greenroom.cli.json_log import JsonFormatter
from greenroom.cli.log_secrets import TextFormatter
from greenroom.cli.terminal import is_debugging
from greenroom.server.inspection import content_policy
from greenroom.server.settings import ServeSettings

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def set_up_log(settings: ServeSettings) -> None:
    handler = logging.StreamHandler()
    if settings.log_format == "json":
        content = content_policy(settings.server.traced_content)
        handler.setFormatter(JsonFormatter(with_content=content.in_export))
    else:
        handler.setFormatter(TextFormatter(_FORMAT))
    logging.basicConfig(level="DEBUG" if is_debugging() else settings.log_level.upper(), handlers=[handler])
