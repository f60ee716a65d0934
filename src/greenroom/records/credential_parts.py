"""Where in a request a credential stands."""

from __future__ import annotations

import base64
from typing import NamedTuple

from greenroom.records.auth import AuthCredential, AuthScheme, HttpCredentials


class CredentialParts(NamedTuple):
    headers: dict[str, str]
    query: dict[str, str]
    cookies: dict[str, str]


def credential_parts(scheme: AuthScheme, credential: AuthCredential) -> CredentialParts | None:
    """The credential as the scheme wants it in a request; None when it holds nothing of use for that scheme."""
    parts = CredentialParts({}, {}, {})
    if scheme.type == "apiKey":
        if not credential.api_key or not scheme.name:
            return None
        places = {"header": parts.headers, "query": parts.query, "cookie": parts.cookies}
        places.get(scheme.in_ or "header", parts.headers)[scheme.name] = credential.api_key
        return parts
    authorization = _authorization(scheme, credential)
    if authorization is None:
        return None
    parts.headers["Authorization"] = authorization
    if credential.http is not None:
        parts.headers.update(credential.http.additional_headers or {})
    return parts


def _authorization(scheme: AuthScheme, credential: AuthCredential) -> str | None:
    token = credential.bearer_token()
    if scheme.type != "http":
        return f"Bearer {token}" if token else None
    name = scheme.scheme or (credential.http.scheme if credential.http is not None else "bearer")
    if name.lower() == "basic":
        given = credential.http.credentials if credential.http is not None else HttpCredentials()
        if not given.username:
            return None
        pair = f"{given.username}:{given.password or ''}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"
    if not token:
        return None
    return f"Bearer {token}" if name.lower() == "bearer" else f"{name} {token}"
