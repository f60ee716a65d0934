"""Contract of credential stores.

Star-import these tests into a test file that has a fixture `credential_service`: a new, empty store
for each test. Needs pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

import time
from typing import Literal

import pytest

from greenroom.credentials.requests import KEPT_SECONDS
from greenroom.credentials.service import BaseCredentialService
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthScheme,
    CredentialRequest,
    OAuth2Auth,
)

_ANN = {"app_name": "concierge", "user_id": "ann"}


def _token(token: str) -> AuthCredential:
    oauth2 = OAuth2Auth(
        client_id="c",
        access_token=token,
        refresh_token="r\u2028é",
        expires_at=12.5,
    )
    return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=oauth2)


def _request(request_id: str = "adk-1", *, created_at: float | None = None) -> CredentialRequest:
    config = AuthConfig(auth_scheme=AuthScheme(type="oauth2"), raw_auth_credential=_token("t"))
    made_at = time.time() if created_at is None else created_at
    return CredentialRequest(
        id=request_id,
        session_id="s-1",
        auth_config=config,
        created_at=made_at,
    )


async def test_a_newer_credential_replaces_the_older(credential_service: BaseCredentialService) -> None:
    for token in ("old", "new"):
        await credential_service.save_credential(
            **_ANN,
            credential_key="k",
            credential=_token(token),
        )
        assert await credential_service.load_credential(**_ANN, credential_key="k") == _token(token)


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"app_name": "other", "user_id": "ann", "credential_key": "k"},
        {"app_name": "concierge", "user_id": "bob", "credential_key": "k"},
        {"app_name": "concierge", "user_id": "ann", "credential_key": "other"},
    ],
)
async def test_a_credential_is_its_users_in_its_app_under_its_key(
    credential_service: BaseCredentialService, elsewhere: dict[str, str]
) -> None:
    await credential_service.save_credential(**_ANN, credential_key="k", credential=_token("t"))
    assert await credential_service.load_credential(**elsewhere) is None
    await credential_service.delete_credential(**elsewhere)
    assert await credential_service.load_credential(**_ANN, credential_key="k") == _token("t")


async def test_a_deleted_credential_is_gone(credential_service: BaseCredentialService) -> None:
    await credential_service.save_credential(**_ANN, credential_key="k", credential=_token("t"))
    for _ in range(2):
        await credential_service.delete_credential(**_ANN, credential_key="k")
        assert await credential_service.load_credential(**_ANN, credential_key="k") is None


async def test_a_users_credentials_are_listed_by_key(credential_service: BaseCredentialService) -> None:
    assert await credential_service.list_credentials(**_ANN) == {}
    for key in ("k2", "k1"):
        await credential_service.save_credential(**_ANN, credential_key=key, credential=_token(key))

    for elsewhere in (_ANN | {"user_id": "bob"}, _ANN | {"app_name": "other"}):
        await credential_service.save_credential(
            **elsewhere,
            credential_key="k3",
            credential=_token("t"),
        )

    listed = await credential_service.list_credentials(**_ANN)
    assert list(listed.items()) == [("k1", _token("k1")), ("k2", _token("k2"))]
    await credential_service.delete_credential(**_ANN, credential_key="k1")
    assert list(await credential_service.list_credentials(**_ANN)) == ["k2"]


async def test_what_is_read_is_the_callers_own(credential_service: BaseCredentialService) -> None:
    credential = _token("t")
    await credential_service.save_credential(**_ANN, credential_key="k", credential=credential)
    credential.resource_ref = "changed"
    read = await credential_service.load_credential(**_ANN, credential_key="k")
    assert read is not None
    assert read == _token("t")
    read.resource_ref = "changed"
    assert await credential_service.load_credential(**_ANN, credential_key="k") == _token("t")


async def test_a_request_is_its_users_in_its_app(credential_service: BaseCredentialService) -> None:
    request = _request()
    outcomes: list[Literal["granted"] | None] = [None, "granted"]
    for outcome in outcomes:
        request.outcome = outcome
        await credential_service.save_request(**_ANN, request=request)
        assert await credential_service.load_request(**_ANN, request_id="adk-1") == request

    for owner in ({"app_name": "other", "user_id": "ann"}, {"app_name": "concierge", "user_id": "bob"}):
        assert await credential_service.load_request(**owner, request_id="adk-1") is None

    assert await credential_service.load_request(**_ANN, request_id="adk-2") is None


async def test_old_requests_are_forgotten(credential_service: BaseCredentialService) -> None:
    await credential_service.save_request(
        **_ANN,
        request=_request("adk-1", created_at=time.time() - KEPT_SECONDS - 60),
    )
    await credential_service.save_request(
        **_ANN,
        request=_request("adk-2", created_at=time.time() - 60),
    )
    await credential_service.save_request(**_ANN, request=_request("adk-3"))
    assert await credential_service.load_request(**_ANN, request_id="adk-1") is None
    assert await credential_service.load_request(**_ANN, request_id="adk-2") is not None


async def test_requests_of_a_session_are_deleted(credential_service: BaseCredentialService) -> None:
    for request_id, session_id in (("adk-1", "s-1"), ("adk-2", "s-2")):
        request = _request(request_id)
        request.session_id = session_id
        await credential_service.save_request(**_ANN, request=request)
    await credential_service.delete_requests(**_ANN, session_id="s-1")
    assert await credential_service.load_request(**_ANN, request_id="adk-1") is None
    assert await credential_service.load_request(**_ANN, request_id="adk-2") is not None


async def test_all_of_a_user_is_deleted(credential_service: BaseCredentialService) -> None:
    bob = {**_ANN, "user_id": "bob"}
    for user in (_ANN, bob):
        await credential_service.save_credential(**user, credential_key="k", credential=_token("t"))
        await credential_service.save_request(**user, request=_request())

    await credential_service.delete_user(**_ANN)

    for user, count in ((_ANN, 0), (bob, 1)):
        assert len(await credential_service.list_credentials(**user)) == count
        assert (await credential_service.load_request(**user, request_id="adk-1") is not None) == bool(count)
