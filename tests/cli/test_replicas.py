"""`greenroom replicas` without servers. With some: tests/replicas/test_operating.py."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize("options", [(), ("--session-service", "sqlite:///x.db"), ("--session-service", "memory://")])
def test_only_postgresql_has_replicas(cli: Cli, options: tuple[str, ...]) -> None:
    refused = cli("replicas", *options)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Only servers on a PostgreSQL database share it. Name it with --session-service" in refused.stderr
    assert not (cli.folder / "x.db").exists()


def test_a_database_without_servers(cli: Cli, postgres_uri: str) -> None:
    listed = cli("replicas", "--session-service", postgres_uri)
    assert (listed.returncode, listed.stdout) == (0, "")
    assert listed.stderr == "No server runs on this database.\n"
