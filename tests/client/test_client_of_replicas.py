"""The clients with four servers behind a load balancer: any of them answers any request."""

from __future__ import annotations

import pytest

from tests.client import test_client, test_typescript
from tests.client.test_client import client as client
from tests.server.conftest import Serve, Store
from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve


@pytest.fixture
def store() -> Store:
    return "replicas"


test_apps_and_sessions = test_client.test_apps_and_sessions
test_a_run_is_read_to_its_end = test_client.test_a_run_is_read_to_its_end
test_a_message_is_read_as_it_is_written = test_client.test_a_message_is_read_as_it_is_written
test_one_key_is_one_run = test_client.test_one_key_is_one_run
test_errors_are_raised = test_client.test_errors_are_raised_as_what_they_were
test_what_a_run_fails_of = test_client.test_what_a_run_fails_of_is_raised_after_its_events
test_a_run_that_another_cancels = test_client.test_a_run_that_another_cancels
test_a_reader_that_stops = test_client.test_a_reader_that_stops_continues_where_it_was
test_the_key_of_a_run = test_client.test_the_key_of_a_run_that_was_continued_gives_all_of_it
test_artifacts_and_memory = test_client.test_artifacts_and_memory
test_a_revoked_key = test_client.test_a_key_lets_in_until_it_is_revoked
test_the_waiting_client = test_client.test_the_waiting_client


async def test_the_client_in_node(serve: Serve) -> None:
    await test_typescript.test_the_client_in_node(serve, "")
