"""`greenroom keys` and `greenroom logins`."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

import pytest

from greenroom.credentials.sql import SqliteCredentialService
from greenroom.records.auth import AuthCredential, AuthCredentialTypes, HttpAuth, HttpCredentials, OAuth2Auth
from tests.cli.conftest import Cli
from tests.cli.test_serve import served


def status(url: str, key: str = "", host: str = "localhost") -> int:
    headers = {"host": host, **({"authorization": f"Bearer {key}"} if key else {})}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/list-apps", headers=headers), timeout=10) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_a_folder_with_keys_is_served_only_to_callers_with_a_key(cli: Cli) -> None:
    made = cli("keys", "create", "agents", "--user", "ada", "--name", "laptop")
    key = made.stdout.strip()
    assert key.startswith("gr_")
    assert key not in made.stderr
    with served(cli, "agents") as (url, said, _):
        assert f"{url}/sign-in" in said
        assert (status(url), status(url, key), status(url, key[:-1])) == (401, 200, 401)
        listed = cli("keys", "list", "agents").stdout
        assert "laptop" in listed
        assert key not in listed
        other = cli("keys", "create", "agents", "--user", "ada", "--scopes", "run", "--days", "1").stdout.strip()
        assert cli("keys", "revoke", key, "agents").returncode == 0
        until = time.monotonic() + 2
        while status(url, key) != 401:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert status(url, other) == 403
    listed = cli("keys", "list", "agents").stdout
    assert "revoked" in listed
    assert "valid until" in listed
    assert "never" not in next(line for line in listed.splitlines() if "laptop" in line)


def test_accounts_and_roles_are_set_listed_and_deleted(cli: Cli) -> None:
    refused = cli("keys", "set-role", "support", "agents", "--scopes", "read")
    assert refused.returncode != 0
    assert "There are no keys yet" in refused.stderr
    cli("keys", "create", "agents", "--user", "root", "--scopes", "admin")
    assert cli("keys", "set-role", "support", "agents", "--scopes", "read", "debug").returncode == 0
    assert "read debug" in cli("keys", "roles", "agents").stdout
    assert cli("keys", "set-account", "ci", "agents", "--roles", "support", "--apps", "parrot").returncode == 0
    key = cli("keys", "create", "agents", "--account", "ci").stdout.strip()
    with served(cli, "agents") as (url, _, _):
        assert status(url, key) == 200
        assert cli("keys", "set-account", "ci", "agents", "--roles", "support", "--disabled").returncode == 0
        until = time.monotonic() + 2
        while status(url, key) != 401:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert "disabled" in cli("keys", "accounts", "agents").stdout
    in_use = cli("keys", "delete-role", "support", "agents")
    assert "in use by service account 'ci'" in in_use.stderr
    assert cli("keys", "delete-account", "ci", "agents").returncode == 0
    assert cli("keys", "delete-role", "support", "agents").returncode == 0
    for wrong in (
        ("create", "agents"),
        ("create", "agents", "--user", "a", "--account", "ci"),
        ("create", "agents", "--account", "absent"),
        ("create", "agents", "--account", "ci", "--scopes", "admin"),
        ("set-role", "-x", "agents", "--scopes", "read"),
        ("set-role", "admin", "agents", "--scopes", "read"),
        ("set-account", "ci", "agents", "--roles", "absent"),
    ):
        assert cli("keys", *wrong).returncode != 0, wrong


def test_listed_ids_are_not_cut_off_on_a_narrow_terminal(cli: Cli) -> None:
    made = cli.run_process(
        "keys", "create", "agents", "--user", "somebody.with.a.long.name@example.com", "--name", "a laptop"
    )
    key_id = made.stdout.split("_")[1]
    listed = cli.run_process("keys", "list", "agents", COLUMNS="40").stdout
    assert key_id in listed.split()
    assert "somebody.with.a.long.name@example.com" in listed
    assert cli.run_process("keys", "revoke", key_id, "agents").returncode == 0


def test_other_machines_need_keys_or_an_explicit_flag(cli: Cli) -> None:
    refused = cli.run_process("serve", "agents", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 1
    assert "--allow-anonymous" in refused.stderr
    assert "greenroom keys create agents" in refused.stderr
    with served(cli, "agents", "--host", "0.0.0.0", "--allow-anonymous") as (_, said, _):
        assert "Anyone who can reach this port" in said
    cli("keys", "create", "agents", "--user", "ada")
    with served(cli, "agents", "--host", "0.0.0.0") as (url, said, _):
        assert "Anyone" not in said
        assert status(url) == 401
    contradiction = cli.run_process("serve", "agents", "--port", "0", "--allow-anonymous")
    assert contradiction.returncode == 1
    assert "Remove one of them" in contradiction.stderr


def test_a_missing_key_file_is_refused(cli: Cli) -> None:
    refused = cli.run_process("serve", "agents", "--port", "0", "--keys", "missing.db")
    assert refused.returncode == 1
    assert "greenroom keys create --keys missing.db" in refused.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--scopes", "everything"), "There is no scope 'everything'"),
        (("--scopes", "app:"), "There is no scope 'app:'"),
        (("--days", "0"), "--days must be more than 0"),
        (("--days", "nan"), "--days must be more than 0"),
        (("--days", "inf"), "at most 36500"),
        (("--days", "1e12"), "at most 36500"),
    ],
)
def test_invalid_keys_are_reported(cli: Cli, given: tuple[str, ...], said: str) -> None:
    refused = cli("keys", "create", "agents", "--user", "ada", *given)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert said in refused.stderr


def test_unknown_keys_and_empty_key_files_are_reported(cli: Cli) -> None:
    assert "There are no keys" in cli("keys", "list", "agents").stderr
    cli("keys", "create", "--keys", "other.db", "--user", "ada")
    refused = cli("keys", "revoke", "nothing", "--keys", "other.db")
    assert refused.returncode == 1
    assert "There is no key with the id 'nothing'" in refused.stderr


def test_keys_and_schema_are_those_of_the_servers_settings(cli: Cli, postgres_uri: str) -> None:
    variables = {"GREENROOM_AUTH_KEYS": postgres_uri, "GREENROOM_SESSION_SERVICE": postgres_uri}
    upgraded = cli("db", "upgrade", "agents", **variables)
    assert upgraded.stdout.startswith("postgresql://"), upgraded.stderr
    made = cli("keys", "create", "agents", "--user", "ada", "--name", "laptop", **variables)
    key = made.stdout.strip()
    assert not (cli.folder / "agents" / ".greenroom").exists()
    assert "laptop" in cli("keys", "list", "--keys", postgres_uri).stdout
    assert "There are no keys" in cli("keys", "list", "agents").stderr

    with served(cli, "agents", "--keys", postgres_uri) as (url, _, _):
        assert (status(url), status(url, key)) == (401, 200)
    assert "Revoked key" in cli("keys", "revoke", key, "agents", **variables).stderr

    cli.write("agents/greenroom.toml", 'auth = {keys = "elsewhere.db"}')
    cli("keys", "create", "agents", "--user", "ada")
    assert (cli.folder / "elsewhere.db").exists()


def test_other_host_names_are_refused_on_loopback(cli: Cli) -> None:
    with served(cli, "agents", "--allow-hosts", "chat.example") as (url, _, _):
        found = [status(url, host=host) for host in ("evil.example", "chat.example", "localhost")]
        assert found == [403, 200, 200]


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


def test_an_unknown_login_cannot_be_revoked(cli: Cli) -> None:
    cli("run", "agents", "hello", "--session-service", "sqlite:///chats.db")
    done = cli.run_process(
        "logins", "revoke", "mail", "agents", "--user", "ada", "--session-service", "sqlite:///chats.db"
    )
    assert (done.returncode, done.stderr) == (1, "User 'ada' has no login 'mail'\n")
