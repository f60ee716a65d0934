"""Tools for Pub/Sub.

Source: `projects.topics.publish`, `projects.subscriptions.pull` and `acknowledge` of the Pub/Sub API's reference, v1.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject
from greenroom.tools.google_cloud.credentials_config import BaseGoogleCredentialsConfig, Credentials
from greenroom.tools.google_cloud.google_tool import GoogleTool
from greenroom.tools.google_cloud.rest_api import GoogleRestApi, object_in, objects_in
from greenroom.tools.google_cloud.toolset import GoogleCloudToolset
from greenroom.tools.toolset import ToolPredicate

_NAME = re.compile(r"projects/[^/]+/(topics|subscriptions)/[^/]+")


@dataclass(kw_only=True)
class PubSubCredentialsConfig(BaseGoogleCredentialsConfig):
    """The credentials of Pub/Sub's tools."""

    default_scopes: ClassVar[tuple[str, ...]] = ("https://www.googleapis.com/auth/pubsub",)


@dataclass(kw_only=True)
class PubSubToolConfig:
    """Settings of Pub/Sub's tools."""

    project_id: str | None = None
    """The project of topics and subscriptions that are named without one."""


class PubSubToolset(GoogleCloudToolset):
    """Publishes, pulls and acknowledges messages.

    credentials_config: without it the machine's own credentials are used. base_url: of another endpoint of the API.
    """

    def __init__(
        self,
        *,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        credentials_config: PubSubCredentialsConfig | None = None,
        pubsub_tool_config: PubSubToolConfig | None = None,
        tool_name_prefix: str | None = None,
        base_url: str = "https://pubsub.googleapis.com",
    ) -> None:
        api = GoogleRestApi(f"{base_url.rstrip('/')}/v1")
        functions = _PubSubFunctions(api, pubsub_tool_config or PubSubToolConfig())
        tools = [
            GoogleTool(one, credentials_config=credentials_config)
            for one in (functions.publish_message, functions.pull_messages, functions.acknowledge_messages)
        ]
        super().__init__(tools, [api], tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)


class _PubSubFunctions:
    """The functions of the tools. Models see their docstrings."""

    def __init__(self, api: GoogleRestApi, settings: PubSubToolConfig) -> None:
        self._api = api
        self._settings = settings

    async def publish_message(
        self,
        topic_name: str,
        message: str,
        credentials: Credentials | None,
        *,
        attributes: dict[str, str] | None = None,
        ordering_key: str = "",
    ) -> JsonObject:
        """Publishes a message to a Pub/Sub topic, and returns its id.

        Args:
            topic_name: The topic, as projects/my-project/topics/my-topic.
            message: The text of the message.
            attributes: Names and values that go with the message.
            ordering_key: Messages of the same key are delivered in order.
        """
        sent: JsonObject = {"data": base64.b64encode(message.encode()).decode()}
        if attributes:
            sent["attributes"] = attributes
        if ordering_key:
            sent["orderingKey"] = ordering_key
        path = f"{self._path(topic_name, 'topics')}:publish"
        reply = await self._api.post(credentials, path, {"messages": [sent]})
        return {"message_id": (reply.get("messageIds") or [None])[0]}

    async def pull_messages(
        self,
        subscription_name: str,
        credentials: Credentials | None,
        *,
        max_messages: int = 1,
        auto_ack: bool = False,
    ) -> JsonObject:
        """Pulls messages of a Pub/Sub subscription. Those that are not acknowledged are delivered again later.

        Args:
            subscription_name: The subscription, as projects/my-project/subscriptions/my-subscription.
            max_messages: How many messages to return at most.
            auto_ack: Acknowledges the messages at once.
        """
        path = self._path(subscription_name, "subscriptions")
        reply = await self._api.post(credentials, f"{path}:pull", {"maxMessages": max_messages})
        messages = [_received(one) for one in objects_in(reply, "receivedMessages")]
        if auto_ack and messages:
            await self._api.post(
                credentials, f"{path}:acknowledge", {"ackIds": [message["ack_id"] for message in messages]}
            )
        return {"messages": messages}

    async def acknowledge_messages(
        self, subscription_name: str, ack_ids: list[str], credentials: Credentials | None
    ) -> JsonObject:
        """Acknowledges messages of a Pub/Sub subscription, which are then not delivered again.

        Args:
            subscription_name: The subscription, as projects/my-project/subscriptions/my-subscription.
            ack_ids: The ack_id of each message, as pull_messages returned it.
        """
        path = self._path(subscription_name, "subscriptions")
        await self._api.post(credentials, f"{path}:acknowledge", {"ackIds": ack_ids})
        return {"status": "SUCCESS"}

    def _path(self, name: str, kind: str) -> str:
        if "/" not in name and self._settings.project_id:
            name = f"projects/{self._settings.project_id}/{kind}/{name}"
        found = _NAME.fullmatch(name)
        if found is None or found[1] != kind or ".." in name:
            raise ToolError(f"{name!r} is not a name of the form projects/…/{kind}/…")
        return quote(name)


def _received(received: JsonObject) -> JsonObject:
    message = object_in(received, "message")
    return {
        "message_id": message.get("messageId") or "",
        "data": _text(message.get("data") or ""),
        "attributes": object_in(message, "attributes"),
        "ordering_key": message.get("orderingKey") or "",
        "publish_time": message.get("publishTime") or "",
        "ack_id": received.get("ackId") or "",
    }


def _text(data: str) -> str:
    """Decodes a text in base64; data that isn't UTF-8 stays base64."""
    try:
        return base64.b64decode(data).decode()
    except UnicodeDecodeError:
        return data
