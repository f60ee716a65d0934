"""`greenroom logins`: what a user granted is listed and revoked beside the server."""

from __future__ import annotations

from greenroom.credentials.sqlite import SqliteCredentialService
from greenroom.records.auth import AuthCredential, AuthCredentialTypes, HttpAuth, HttpCredentials, OAuth2Auth
from tests.cli.conftest import Cli

OAUTH = AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(access_token="hidden-token"))
HTTP = AuthCredential(
    auth_type=AuthCredentialTypes.HTTP,
    http=HttpAuth(scheme="bearer", credentials=HttpCredentials(token="hidden-token")),
)


async def test_logins_are_listed_without_secrets_and_revoked(cli: Cli) -> None:
    cli("run", "agents", "hello", "--session-service", "sqlite:///chats.db")
    store = SqliteCredentialService(cli.folder / "chats.db")
    await store.save_credential(app_name="parrot", user_id="ada", credential_key="mail", credential=OAUTH)
    await store.save_credential(app_name="parrot", user_id="ada", credential_key="wiki", credential=HTTP)
    await store.save_credential(app_name="parrot", user_id="bob", credential_key="mail", credential=OAUTH)

    def logins(*args: str) -> list[list[str]]:
        done = cli("logins", *args, "agents", "--session-service", "sqlite:///chats.db")
        assert done.returncode == 0, done.stderr
        assert "hidden" not in done.stdout + done.stderr
        return [line.split() for line in done.stdout.splitlines()[1:]]

    assert logins("list", "--user", "ada") == [["parrot", "mail", "oauth2"], ["parrot", "wiki", "http"]]
    logins("revoke", "--user", "ada", "mail")
    assert logins("list", "--user", "ada") == [["parrot", "wiki", "http"]]
    assert logins("list", "--user", "bob") == [["parrot", "mail", "oauth2"]]
    assert await store.load_credential(app_name="parrot", user_id="ada", credential_key="mail") is None
    await store.close()


def test_a_login_that_nobody_granted_cannot_be_revoked(cli: Cli) -> None:
    cli("run", "agents", "hello", "--session-service", "sqlite:///chats.db")
    done = cli("logins", "revoke", "mail", "agents", "--user", "ada", "--session-service", "sqlite:///chats.db")
    assert (done.returncode, done.stderr) == (1, "User 'ada' granted no login 'mail'\n")
