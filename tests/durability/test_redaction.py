"""A run of an app with rules of redaction, whose server is killed: it continues from what is stored."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.durability.patient_client import patient_client
from tests.durability.redacting_server import MAIL, PHONE
from tests.durability.server_process import server_in


def _found_in(folder: Path) -> list[str]:
    files = list(folder.glob("greenroom.db*"))
    return [f"{path.name}: {one}" for path in files for one in (MAIL, PHONE) if one.encode() in path.read_bytes()]


@pytest.mark.kill
async def test_a_killed_run_continues_with_what_is_stored(tmp_path: Path) -> None:
    session = "/apps/desk/users/ada/sessions/s-1"
    async with server_in(tmp_path, module="tests.durability.redacting_server") as server:
        await server.start()
        async with patient_client(server) as client:
            await client.send("POST", session)
            body = {"newMessage": {"parts": [{"text": f"Call {PHONE}"}]}}
            started = await client.send("POST", f"{session}/runs", json=body, headers={"Idempotency-Key": "k"})
            assert started.status_code == 202, started.text
            async with asyncio.timeout(30):
                while not (tmp_path / "begun").exists():
                    await asyncio.sleep(0.01)
            await server.kill()
            assert _found_in(tmp_path) == []

            (tmp_path / "may-go-on").write_text("")
            await server.start()
            await client.wait_for_status(f"/runs/{started.json()['id']}", "succeeded", seconds=60, pause_seconds=0.1)
            events = (await client.send("GET", session)).json()["events"]

    result = events[2]["content"]["parts"][0]["functionResponse"]["response"]["result"]
    assert result == f"{'Call [redacted: phone] <[redacted: email]>'[::-1]}, and [redacted: phone]"
    seen = events[3]["content"]["parts"][0]["text"][::-1]
    assert "[redacted: phone]" in seen
    assert MAIL not in seen
    assert PHONE not in seen
    assert _found_in(tmp_path) == []
