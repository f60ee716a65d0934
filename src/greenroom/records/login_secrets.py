"""Removal of logins' secrets from events before they are stored, since every reader of the session would see them.

Source of the names: ADK's servers, which take the same out of each answer. Secrets that redeem a
login are kept elsewhere.
"""

from __future__ import annotations

import re
from typing import Any, cast

from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event

_SECRETS = (
    "clientSecret", "authResponseUri", "authCode", "accessToken", "refreshToken", "idToken", "codeVerifier", "password",
    "token", "additionalHeaders", "privateKey", "privateKeyId", "apiKey",
)  # fmt: skip
_SECRET_KEYS = frozenset(_SECRETS) | {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key) for key in _SECRETS}
_FLOWS = "flows"
"""The key of an object in which `password` is the name of a login flow."""

_INTERNAL = "__adk_internal_"
CALL_SIGNATURES = "__adk_internal_fc_hmac"
"""Kept: signatures of an event's calls by call id, see `ToolCallIntegrityPlugin`."""

_CREDENTIAL_REQUEST = "adk_request_credential"


def redact(event: Event) -> None:
    """Removes credentials' secrets, and metadata under ADK's reserved prefix, from an event in place."""
    event.custom_metadata = without_internal(event.custom_metadata)
    if event.actions.requested_auth_configs:
        event.actions.requested_auth_configs = without_secrets(event.actions.requested_auth_configs)
    for part in (event.content.parts if event.content else None) or ():
        call = part.function_call
        response = part.function_response
        if call is not None and call.name == _CREDENTIAL_REQUEST and call.args is not None:
            call.args = without_secrets(call.args)
        if response is not None and response.name == _CREDENTIAL_REQUEST and response.response is not None:
            response.response = without_secrets(response.response)


def without_internal(metadata: JsonObject | None) -> JsonObject | None:
    if not metadata or not any(key.startswith(_INTERNAL) for key in metadata):
        return metadata
    kept = {key: value for key, value in metadata.items() if key == CALL_SIGNATURES or not key.startswith(_INTERNAL)}
    return kept or None


def without_secrets(config: JsonObject) -> JsonObject:
    """Removes secrets from all AuthConfigs in a JSON object."""
    return {
        key: value if key == _FLOWS else _inner(value)
        for key, value in config.items()
        if key not in _SECRET_KEYS or value is None
    }


def _inner(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return without_secrets(cast("JsonObject", value))
    if isinstance(value, list):
        return [_inner(item) for item in cast("list[Any]", value)]
    return value
