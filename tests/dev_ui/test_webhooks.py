"""The webhooks of a run in the inspector, against a receiver that fails once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.dev_ui.apps import desk
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.server.conftest import write_webhook_secrets
from tests.server.webhook_receiver import receiving, status

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_deliveries_of_a_run_are_shown_sent_again_and_tested(world: World, tmp_path: Path) -> None:
    secrets = str(write_webhook_secrets(tmp_path))
    async with (
        receiving(status(500)) as receiver,
        world.serve(desk(), webhook_secrets=secrets, allow_private_webhooks=True) as server,
    ):
        for app in server.apps:
            app.engine.webhooks.retry_seconds = (600.0,)
        session = "/apps/desk/users/user/sessions/told"
        await server.client.post(session, json={})
        message = {"role": "user", "parts": [{"text": "hello"}]}
        webhook = {"url": receiver.url, "states": ["succeeded"], "id": "w"}
        started = await server.client.post(f"{session}/runs", json={"newMessage": message, "webhooks": [webhook]})
        run = await server.wait_for_status(started.json()["id"], "succeeded")
        events = (await server.client.get(f"/runs/{run['id']}/events")).json()["events"]
        page = await world.open(f"{server.url}/dev-ui/apps/desk/sessions/told?event={events[-1]['id']}&tab=overview")

        webhooks = page.get_by_role("region", name="Webhooks")
        await expect(webhooks).to_contain_text(receiver.url)
        await expect(webhooks).to_contain_text("Pending")
        await expect(webhooks).to_contain_text("500 after")
        await webhooks.get_by_role("button", name="Redeliver").click()
        await expect(webhooks).to_contain_text("Delivered")
        await expect(webhooks).to_contain_text("try 2")
        assert receiver.messages[0].id == receiver.messages[1].id

        receiver.answers = [status(404)]
        await webhooks.get_by_role("button", name="Test").click()
        await expect(webhooks.get_by_role("listitem").filter(has_text="webhook.test").last).to_contain_text("Failed")
        assert receiver.types == ["run.succeeded", "run.succeeded", "webhook.test"]

        if folder := os.environ.get("SCREENSHOTS"):
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                await webhooks.scroll_into_view_if_needed()
                await page.screenshot(path=f"{folder}/webhooks-{scheme}.png")
        assert await serious_violations(page) == []
        await page.goto("about:blank")
