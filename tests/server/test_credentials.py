"""Users see which logins they granted, without secrets, and revoke them."""

from __future__ import annotations

from greenroom.client.async_client import AsyncClient
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.records.auth import AuthCredential, AuthCredentialTypes, OAuth2Auth
from tests.server.conftest import Serve
from tests.server.security.conftest import keys as keys
from tests.server.security.keys import Keys, bearer

PATH = "/apps/echo/users/ann/credentials"


async def test_a_granted_login_is_listed_and_revoked(serve: Serve, keys: Keys) -> None:
    store = InMemoryCredentialService()
    for key in ("google/calendar", "jira"):
        login = OAuth2Auth(client_id="c", client_secret="hush", access_token="hush", expires_at=5.0)
        credential = AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=login)
        await store.save_credential(app_name="echo", user_id="ann", credential_key=key, credential=credential)
    server = await serve(services={"credential_service": store}, auth=keys.auth)
    own = bearer(keys("ann", "run", "read"))
    other = bearer(keys("bob", "run", "read", "manage", "debug"))
    reply = await server.client.get(PATH, headers=own)
    assert reply.json()[0] == {"credentialKey": "google/calendar", "authType": "oauth2", "expiresAt": 5.0}
    assert "hush" not in reply.text
    assert (await server.client.get(PATH, headers=other)).status_code == 403
    assert (await server.client.delete(f"{PATH}/jira", headers=other)).status_code == 403
    assert (await server.client.delete(f"{PATH}/google/calendar", headers=own)).status_code == 200
    async with AsyncClient(server.url, api_key=keys("ann", "run", "read")) as client:
        assert [login.credential_key for login in await client.list_credentials(app_name="echo", user_id="ann")] == [
            "jira"
        ]
        await client.revoke_credential(app_name="echo", user_id="ann", credential_key="jira")
    assert await store.list_credentials(app_name="echo", user_id="ann") == {}
