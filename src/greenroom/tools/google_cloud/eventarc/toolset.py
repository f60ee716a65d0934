"""The toolset of Eventarc.

Source: `projects.locations.messageBuses.publish` of the Eventarc Publishing API's reference, v1.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import quote

import msgspec

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject
from greenroom.telemetry.span import current_traceparent
from greenroom.tools.google_cloud.credentials_config import Credentials
from greenroom.tools.google_cloud.eventarc.bindings import Binding, CloudEventAttributesBinding, EventBindings
from greenroom.tools.google_cloud.eventarc.config import EventarcCredentialsConfig, EventarcToolConfig
from greenroom.tools.google_cloud.eventarc.events import cloud_event
from greenroom.tools.google_cloud.google_tool import GoogleTool
from greenroom.tools.google_cloud.rest_api import GoogleRestApi
from greenroom.tools.google_cloud.toolset import GoogleCloudToolset
from greenroom.tools.toolset import ToolPredicate

_BUS = re.compile(r"projects/[^/]+/locations/[^/]+/messageBuses/[^/]+")
_PAYLOAD = "event_data"


class EventarcToolset(GoogleCloudToolset):
    """Publishes events to buses of Eventarc Advanced.

    credentials_config: without it the machine's own credentials are used. base_url: of another endpoint of the API.
    """

    def __init__(
        self,
        *,
        tool_config: EventarcToolConfig | None = None,
        credentials_config: EventarcCredentialsConfig | None = None,
        tool_name_prefix: str | None = None,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        base_url: str = "https://eventarcpublishing.googleapis.com",
    ) -> None:
        self.tool_config = tool_config or EventarcToolConfig()
        self.credentials_config = credentials_config
        seconds = self.tool_config.publish_timeout
        api = GoogleRestApi(f"{base_url.rstrip('/')}/v1", read_timeout_seconds=seconds)
        self._publisher = _Publisher(api)
        self._offered = [GoogleTool(self._publisher.publish_message, credentials_config=credentials_config)]
        super().__init__(self._offered, [api], tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)

    def create_publish_tool(
        self,
        *,
        name: str,
        description: str,
        bus: Binding,
        ce_attributes_binding: CloudEventAttributesBinding,
        payload_schema: type[Any] | None = None,
    ) -> GoogleTool:
        """Adds a tool for one kind of events to the toolset, and returns it.

        bus, ce_attributes_binding: texts, functions of the payload or of the tool context, or choices of the model.
        payload_schema: of the event's data, a class of pydantic; without it events have no data.

        Raises TypeError and ValueError for invalid bindings.
        """
        bindings = EventBindings(bus, ce_attributes_binding)
        publisher = self._publisher

        async def publish(**given: Any) -> JsonObject:
            credentials = given.pop("credentials")
            payload = given.pop(_PAYLOAD, None)
            values = bindings.values(given, payload, given.pop("tool_context", None))
            return await publisher.publish_message(credentials=credentials, data=_plain(payload), **values)

        described = {one: chosen.description for one, chosen in bindings.parameters().items()}
        if payload_schema is not None:
            described[_PAYLOAD] = "The data of the event."
        lines = "".join(f"    {one}: {text}\n" for one, text in described.items())
        publish.__name__ = name
        publish.__doc__ = f"{description}\n\nArgs:\n{lines}" if lines else description
        # The declaration for the model is read from here.
        cast("Any", publish).__signature__ = inspect.Signature(_parameters(bindings, payload_schema))
        tool = GoogleTool(publish, credentials_config=self.credentials_config)
        self._offered.append(tool)
        return tool


class _Publisher:
    """The function of the tool. Models see its docstring."""

    def __init__(self, api: GoogleRestApi) -> None:
        self._api = api

    async def publish_message(
        self,
        *,
        bus: str,
        type: str,  # noqa: A002 - as in ADK
        source: str,
        credentials: Credentials | None,
        data: Any | None = None,
        is_base64_encoded: bool = False,
        include_tracing_extension: bool = False,
        datacontenttype: str | None = None,
        specversion: str = "1.0",
        subject: str | None = None,
        id: str | None = None,  # noqa: A002 - as in ADK
        time: str | None = None,
        custom_attributes: dict[str, str] | None = None,
    ) -> JsonObject:
        """Publishes a CloudEvent to a bus of Eventarc Advanced, and returns its id.

        Args:
            bus: The bus, as projects/my-project/locations/my-location/messageBuses/my-bus.
            type: The kind of event, such as com.example.order.created.
            source: The URI of where the event happened.
            data: The content of the event: a text, a number, a list or a map.
            is_base64_encoded: Whether data is base64 of binary data.
            include_tracing_extension: Adds the trace of this call to the event.
            datacontenttype: The media type of data; it follows from data by default.
            specversion: The version of the CloudEvents specification.
            subject: What the event is about, within its source.
            id: The id of the event; a random one by default.
            time: When the event happened, in RFC 3339; now by default. An empty text leaves it out.
            custom_attributes: More attributes of the event; names have lower-case letters and digits.
        """
        if not _BUS.fullmatch(bus) or ".." in bus:
            raise ToolError(f"{bus!r} is not a name of the form projects/…/locations/…/messageBuses/…")
        extensions = dict(custom_attributes or {})
        traceparent = current_traceparent() if include_tracing_extension else None
        if traceparent is not None:
            extensions["traceparent"] = traceparent
        event = cloud_event(
            event_type=type,
            source=source,
            data=data,
            is_base64=is_base64_encoded,
            datacontenttype=datacontenttype,
            specversion=specversion,
            subject=subject,
            event_id=id,
            time=time,
            extensions=extensions,
        )
        await self._api.post(credentials, f"{quote(bus)}:publish", {"protoMessage": event})
        return {"status": "SUCCESS", "message_id": event["id"]}


def _parameters(bindings: EventBindings, payload_schema: type[Any] | None) -> list[inspect.Parameter]:
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters: list[inspect.Parameter] = []
    for name, chosen in bindings.parameters().items():
        if chosen.is_required:
            parameters.append(inspect.Parameter(name, kind, annotation=str))
            continue
        default = chosen.default if isinstance(chosen.default, str) else None
        parameters.append(inspect.Parameter(name, kind, annotation=str | None, default=default))

    if payload_schema is not None:
        parameters.append(inspect.Parameter(_PAYLOAD, kind, annotation=payload_schema))
    parameters.append(inspect.Parameter("credentials", kind, annotation=object, default=None))
    parameters.append(inspect.Parameter("tool_context", kind, annotation=ToolContext, default=None))
    return parameters


def _plain(payload: object) -> Any:
    """The payload as JSON; of an object of pydantic only the fields that were set."""
    dump = getattr(payload, "model_dump", None)
    if dump is not None:
        return dump(mode="json", exclude_unset=True)
    return msgspec.to_builtins(payload)
