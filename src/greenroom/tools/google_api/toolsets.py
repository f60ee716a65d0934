"""The toolsets of Google's most used APIs: `GoogleApiToolset` with the API's name and version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from greenroom.records.auth import ServiceAccount
from greenroom.tools.google_api.toolset import GoogleApiToolset
from greenroom.tools.toolset import ToolPredicate


class _NamedApiToolset(GoogleApiToolset):
    """Base of the toolsets of one API. `options` are further arguments of `GoogleApiToolset`."""

    _api: ClassVar[tuple[str, str]]

    def __init__(
        self,
        client_id: str | None = None,
        client_secret: str | None = None,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        service_account: ServiceAccount | None = None,
        tool_name_prefix: str | None = None,
        **options: Any,
    ) -> None:
        name, version = self._api
        super().__init__(
            name, version, client_id, client_secret, tool_filter, service_account, tool_name_prefix, **options
        )


class BigQueryToolset(_NamedApiToolset):
    """Tools for all methods of BigQuery's REST API. `greenroom.BigQueryToolset` has a few tools made for models."""

    _api = ("bigquery", "v2")


class CalendarToolset(_NamedApiToolset):
    """The methods of Google Calendar's API."""

    _api = ("calendar", "v3")


class DocsToolset(_NamedApiToolset):
    """The methods of Google Docs' API."""

    _api = ("docs", "v1")


class GmailToolset(_NamedApiToolset):
    """The methods of Gmail's API."""

    _api = ("gmail", "v1")


class SheetsToolset(_NamedApiToolset):
    """The methods of Google Sheets' API."""

    _api = ("sheets", "v4")


class SlidesToolset(_NamedApiToolset):
    """The methods of Google Slides' API."""

    _api = ("slides", "v1")


class YoutubeToolset(_NamedApiToolset):
    """The methods of YouTube's data API."""

    _api = ("youtube", "v3")
