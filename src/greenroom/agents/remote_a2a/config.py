"""Settings and hooks of remote agents. Source of the names: ADK 2.13."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from greenroom.a2a.part_metadata import AggregationMode
from greenroom.a2a.parts import from_a2a_part
from greenroom.invocation.context import InvocationContext
from greenroom.records.base import JsonObject
from greenroom.records.declarative import Declarative
from greenroom.records.event import Event

if TYPE_CHECKING:
    from a2a.client import ClientCallContext
    from a2a.types import Message

PartConverter: TypeAlias = Callable[[Any], Any]
"""From one part to another, to several, or to None, which leaves it out."""

EventConverter: TypeAlias = Callable[[Any, str, InvocationContext, PartConverter], Event | None]
"""From a response (message, task or update), the author, the context and the part converter to an
event; None drops it. It replaces the built-in conversion of responses of its kind.
"""


class ParametersConfig(Declarative):
    """Additions to a message to a remote agent."""

    request_metadata: JsonObject | None = None
    """Sent with the message."""

    client_call_context: ClientCallContext | None = None
    """Of the SDK's call, with its headers."""


class RequestInterceptor(Declarative):
    """Hooks around the request to a remote agent."""

    before_request: (
        Callable[[InvocationContext, Message, ParametersConfig], Awaitable[tuple[Message | Event, ParametersConfig]]]
        | None
    ) = None
    """May change the message and the parameters; an event in place of the message ends the turn
    with that event, and nothing is sent.
    """

    after_request: Callable[[InvocationContext, Any, Event], Awaitable[Event | None]] | None = None
    """Called with each response and its event, in reverse order of the interceptors; None drops the
    event.
    """


class A2aCardRequestConfig(Declarative):
    headers: dict[str, str] | None = None


class CardRequestInterceptor(Declarative):
    """A hook before the remote agent's card is fetched."""

    before_request: Callable[[InvocationContext], Awaitable[A2aCardRequestConfig]] | None = None
    """Additional headers for fetching the card; a card that needs any is fetched for each turn."""


class A2aRemoteAgentConfig(Declarative):
    """Converters and interceptors of a remote agent."""

    a2a_message_converter: EventConverter | None = None
    a2a_task_converter: EventConverter | None = None
    a2a_status_update_converter: EventConverter | None = None
    a2a_artifact_update_converter: EventConverter | None = None
    a2a_part_converter: PartConverter = from_a2a_part
    request_interceptors: Sequence[RequestInterceptor] = ()
    card_request_interceptors: Sequence[CardRequestInterceptor] = ()
    forward_session_id_as_context_id: bool | Literal["namespaced"] = False
    """The context id of a new conversation: none (the remote server makes one), the session's id
    (True), or a SHA-256 of app, user and session ("namespaced").
    """

    aggregation_mode: AggregationMode | None = None
    """The way in which new events of the session become the parts of a message. By default texts of other
    agents are quoted with their names, calls are left out, and responses become text; with a
    mode, the parts are those of the events, as the mode says.
    """
