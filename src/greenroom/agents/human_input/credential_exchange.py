"""Exchanges a user's answer for a credential: the answer is checked and exchanged before any of it is stored.

Source: ADK's credential flow. The scheme, the client id and secret, the state and the code verifier are taken from the
server's own record of the request; the answer only supplies the values that the user alone can give.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import cast

import msgspec

from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import ApprovalRefused, InvalidRequest
from greenroom.log.state import log_state_of
from greenroom.records import wire
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    CredentialRequest,
    HttpAuth,
    HttpCredentials,
    OAuth2Auth,
    credential_parts,
    public_config,
)
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionResponse, Part
from greenroom.records.human_requests import DECLINED, EXPIRES_AFTER_SECONDS
from greenroom.records.session import Session
from greenroom.tools.login.oauth2 import TokenRefused, exchange_code, is_declined
from greenroom.tools.web.http_client import HttpClient


async def exchange_credentials(
    credentials: BaseCredentialService, session: Session, message: Content | None
) -> Content | None:
    """The message with each answer to a credential request replaced by how it went. Raises ApprovalRefused."""
    answers = log_state_of(session.events).credential_answers(message)
    if not answers or message is None:
        return message
    stored: dict[str | None, JsonObject] = {}
    for open_request, answer in answers:
        request = await credentials.load_request(
            app_name=session.app_name, user_id=session.user_id, request_id=open_request.call.id or ""
        )
        if request is None or request.session_id != session.id:
            raise ApprovalRefused("no run of this session asks for it")
        if time.time() - request.created_at > EXPIRES_AFTER_SECONDS:
            raise ApprovalRefused("it is out of date")
        stored[open_request.call.id] = await _settle(credentials, session, request, answer)
    parts = [
        Part(function_response=FunctionResponse(id=response.id, name=response.name, response=stored[response.id]))
        if (response := part.function_response) is not None and response.id in stored
        else part
        for part in message.parts or ()
    ]
    return Content(role=message.role, parts=parts)


async def _settle(
    credentials: BaseCredentialService, session: Session, request: CredentialRequest, answer: JsonObject
) -> JsonObject:
    config = request.auth_config
    owner = {"app_name": session.app_name, "user_id": session.user_id}
    if request.outcome is None:  # else it was exchanged before a crash, and the client repeats its answer
        credential = await _credential(request, _plain(answer))
        if credential is not None:
            key = config.credential_key or ""
            await credentials.save_credential(**owner, credential_key=key, credential=credential)
        request.outcome = "granted" if credential is not None else "declined"
        request.auth_config = config = public_config(config)
        await credentials.save_request(**owner, request=request)
    if request.outcome == "declined":
        return dict(DECLINED)
    answer_config: JsonObject = wire.to_plain(public_config(config))
    return answer_config


def _plain(answer: JsonObject) -> JsonObject | str:
    """Unwraps the answer: web UIs wrap it in an object, and may send it as JSON text."""
    inner: JsonValue = answer
    if len(answer) == 1:
        inner = answer.get("response", answer.get("result", answer))
    if isinstance(inner, str) and inner.lstrip().startswith("{"):
        try:
            inner = msgspec.json.decode(inner)
        except msgspec.DecodeError:
            raise ApprovalRefused("its answer is not valid JSON") from None
    return cast("JsonObject | str", inner) if isinstance(inner, (dict, str)) else {}


async def _credential(request: CredentialRequest, answer: JsonObject | str) -> AuthCredential | None:
    """Returns the credential that the answer grants; None when it declines."""
    config = request.auth_config
    if isinstance(answer, str):
        answer = _typed_in(config, answer)
    if not answer or "error" in answer:
        return None
    answered = _answered_credential(answer)
    if answered is None:
        raise ApprovalRefused("its answer holds no credential")
    own = config.raw_auth_credential
    if answered.oauth2 is not None and own is not None and own.oauth2 is not None:
        if is_declined(answered.oauth2):
            return None
        if answered.oauth2.auth_response_uri or answered.oauth2.auth_code:
            return await _exchange(request, answered.oauth2)
        token_fields = ("access_token", "refresh_token", "id_token", "expires_at", "expires_in")
        tokens = {name: getattr(answered.oauth2, name) for name in token_fields}
        answered.oauth2 = msgspec.structs.replace(own.oauth2, **tokens)
    if answered.service_account is not None or credential_parts(config.auth_scheme, answered) is None:
        raise ApprovalRefused(f"its answer holds nothing that a scheme of type {config.auth_scheme.type} takes")
    return answered


async def _exchange(request: CredentialRequest, answer: OAuth2Auth) -> AuthCredential:
    async with aclosing(HttpClient(allow_private_network_access=not request.only_public_hosts)) as client:
        try:
            return await exchange_code(request.auth_config, answer, client)
        except TokenRefused as error:
            raise ApprovalRefused(error.reason) from error


def _typed_in(config: AuthConfig, text: str) -> JsonObject:
    """A key or a token that a user typed into a box, as a credential of the scheme."""
    if not text.strip():
        return {}
    credential = AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key=text.strip())
    if config.auth_scheme.type != "apiKey":
        http = HttpAuth(credentials=HttpCredentials(token=text.strip()))
        credential = AuthCredential(auth_type=AuthCredentialTypes.HTTP, http=http)
    plain: JsonObject = wire.to_plain(credential)
    return plain


def _answered_credential(answer: JsonObject) -> AuthCredential | None:
    """Reads a credential, or the exchanged credential of an AuthConfig."""
    try:
        if "authScheme" in answer or "auth_scheme" in answer:
            return wire.from_plain(answer, AuthConfig).exchanged_auth_credential
        return wire.from_plain(answer, AuthCredential)
    except InvalidRequest:
        raise ApprovalRefused("its answer is no credential") from None
