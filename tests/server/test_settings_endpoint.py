"""The settings in effect over HTTP, and memories of other users."""

from __future__ import annotations

from pathlib import Path

from greenroom.audit.signing import new_key_pair
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuditSettings, AuthSettings
from tests.server.agents import echo
from tests.server.conftest import Serve


async def test_settings_are_shown_with_their_sources_and_without_secrets(serve: Serve, tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.db")
    _, root = keys.create(name="", subject="root", scopes=["admin"])
    private = new_key_pair()[0].decode()
    server = await serve(
        echo(),
        auth=AuthSettings(keys=str(keys.path)),
        audit=AuditSettings(key=private),
        public_url="https://ann:sesame@agents.example",
    )
    server.app.note_origins({"public_url": "variable GREENROOM_PUBLIC_URL", "auth.keys": "default"})
    answer = await server.client.get("/settings", headers={"x-api-key": root})
    settings = {one["key"]: one for one in answer.json()["settings"]}
    assert settings["public_url"]["value"] == "https://ann:********@agents.example"
    assert settings["public_url"]["origin"] == "variable GREENROOM_PUBLIC_URL"
    assert (settings["audit.key"]["value"], settings["audit.key"]["origin"]) == ("********", "code")
    assert (settings["auth.keys"]["value"], settings["auth.keys"]["origin"]) == (str(keys.path), "derived")
    assert settings["keep_alive_seconds"]["isDefault"]
    assert settings["keep_alive_seconds"]["variable"] == "GREENROOM_KEEP_ALIVE_SECONDS"
    for secret in ("sesame", private.splitlines()[1]):
        assert secret not in answer.text

    for scopes, apps in ((["run", "read", "manage", "debug", "audit", "app:echo"], None), (["admin"], ["echo"])):
        _, key = keys.create(name="", subject="ann", scopes=scopes, apps=apps)
        assert (await server.client.get("/settings", headers={"x-api-key": key})).status_code == 403


async def test_memories_are_those_of_the_own_user_unless_a_scope_allows_more(serve: Serve, tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.db")
    server = await serve(echo(), auth=AuthSettings(keys=str(keys.path)))
    memories = "/apps/echo/users/ann/memories"
    body = {"content": {"parts": [{"text": "likes tea"}]}}
    for subject, scopes, expected in (
        ("ann", ["run", "read"], [200, 404, 200]),
        ("ann", ["read"], [200, 403, 403]),
        ("bob", ["run", "read", "manage", "debug", "audit"], [403, 403, 403]),
        ("bob", ["run", "read", "app:echo"], [200, 404, 200]),
    ):
        _, key = keys.create(name="", subject=subject, scopes=scopes)
        headers = {"x-api-key": key}
        answers = [
            await server.client.get(memories, headers=headers),
            await server.client.put(f"{memories}/m", json=body, headers=headers),
            await server.client.delete(f"{memories}/m", headers=headers),
        ]
        assert [answer.status_code for answer in answers] == expected, (subject, scopes)
