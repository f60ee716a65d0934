"""A request for a credential as the server keeps it, with what no client may see."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from greenroom.records.auth import AuthConfig
from greenroom.records.base import Record


class CredentialRequest(Record, kw_only=True):
    """id: also that of the call that asks. auth_config: with the app's own secrets, the `state` and the code verifier.
    outcome: None while it waits; after that the secrets are gone from `auth_config`.

    only_public_hosts: the token endpoint comes from a document, so it may not lead into the server's own network.
    """

    id: str
    session_id: str
    auth_config: AuthConfig
    only_public_hosts: bool = False
    outcome: Literal["granted", "declined"] | None = None
    created_at: float = msgspec.field(default_factory=time.time)
