"""Published versions through the Python client."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.client.async_client import AsyncClient
from greenroom.errors import NotFound, VersionInUse
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from tests.server.serving import serving

_AGENT = """
from greenroom import LlmAgent
from greenroom.testing import ScriptedModel
root_agent = LlmAgent(name="desk", instruction="Say {0}.", model=ScriptedModel(lambda request: "{0}"))
"""


async def test_versions_are_published_compared_and_served(tmp_path: Path) -> None:
    agent = tmp_path / "desk" / "agent.py"
    agent.parent.mkdir()
    agent.write_text(_AGENT.format("one"))
    app = create_app(agents_dir=tmp_path, settings=ServerSettings(auto_create_session=True))
    async with serving(app) as server, AsyncClient(server.url) as client:
        first = await client.publish_version(app_name="desk", message="the first")
        assert await client.publish_version(app_name="desk") == first
        assert (await client.set_traffic({"v1": 60, "source": 40}, app_name="desk")).shares == {"v1": 60, "source": 40}
        for number in range(8):
            session_id = f"s-{number}"
            run = await client.run(app_name="desk", user_id="ann", session_id=session_id, message="hi")
            assert [event async for event in run]
        runs = (await client.list_runs(app_name="desk", app_version="v1")).runs
        assert 0 < len(runs) < 8
        assert {run.app_version for run in runs} == {first.version}
        scores = await client.get_version_scores(app_name="desk", baseline="source")
        assert [(one.name, one.runs) for one in scores.versions] == [("v1", len(runs)), ("source", 8 - len(runs))]
        assert scores.versions[0].failures is not None

        agent.write_text(_AGENT.format("two"))
        compared = await client.compare_app_versions("v1", "source", app_name="desk")
        assert [file.path for file in compared.files] == ["desk/agent.py"]
        whole = await client.get_app_version(app_name="desk", name="v1")
        assert [described.instruction for described in whole.agents or ()] == ["Say one."]
        with pytest.raises(VersionInUse):
            await client.delete_app_version(app_name="desk", name="v1")
        await client.set_traffic({}, app_name="desk")
        await client.delete_app_version(app_name="desk", name="v1")
        with pytest.raises(NotFound):
            await client.get_app_version(app_name="desk", name="v1")
        assert (await client.list_app_versions(app_name="desk")).versions == []
