"""A part of the other tests with four servers behind a load balancer; GREENROOM_REPLICAS=1 runs them all this way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from tests.dev_ui import test_chat, test_inspector, test_pages
from tests.dev_ui.apps import all_apps
from tests.dev_ui.conftest import ServesAgents, serving_by_replicas
from tests.postgres.postgres_server import PostgresServer
from tests.server.serving import Serving

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(scope="session")
def serve_agents(postgres_server: PostgresServer) -> ServesAgents:
    return partial(serving_by_replicas, postgres_server)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(serve_agents: ServesAgents) -> AsyncIterator[Serving]:
    async with serve_agents(*all_apps()) as serving_all:
        yield serving_all


test_a_first_message = test_chat.test_a_first_message_makes_a_session_and_its_answer_streams
test_a_dropped_connection = test_chat.test_a_dropped_connection_and_a_reload_in_mid_run_lose_and_repeat_nothing
test_queued_messages = test_chat.test_messages_of_a_running_session_queue_and_stop_cancels
test_an_approval = test_chat.test_an_approval_is_answered_once_in_either_tab_and_remembered
test_a_fork = test_chat.test_a_message_is_edited_and_sent_in_a_fork_and_a_failure_retried
test_a_trace = test_inspector.test_a_tools_event_shows_its_arguments_and_result
test_an_evaluation = test_pages.test_a_session_becomes_a_case_which_is_run_and_shown
test_the_list_of_runs = test_pages.test_runs_appear_by_themselves_and_are_cancelled_together
