"""The policy of an app's approvals, in YAML."""

from __future__ import annotations

import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.errors import AppLoadError
from greenroom.records.approval_policy import ApprovalPolicy
from tests.apps.conftest import AgentsDir

PLAIN = "name: shop\nmodel: scripted\ninstruction: Sell.\n"


def test_a_policy_of_approvals_is_read_beside_the_agent(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/root_agent.yaml", PLAIN)
    agents_dir.write(
        "shop/app_settings.yaml", "approvals:\n  users: [bob, carol]\n  required: 2\n  deadline_seconds: 60\n"
    )
    policy = DirectoryAppLoader(agents_dir.path).load("shop").approvals
    assert policy == ApprovalPolicy(users=["bob", "carol"], required=2, deadline_seconds=60)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("approvals: {user: [bob]}\n", "user: there is no such key"),
        ("approvals: {users: [bob], required: 2}\n", "2 of 1 users can't be required"),
        ("approvals: {users: [bob], required: many}\n", "required"),
    ],
)
def test_a_wrong_policy_of_approvals_is_an_error_of_its_file(agents_dir: AgentsDir, text: str, fault: str) -> None:
    agents_dir.write("shop/root_agent.yaml", PLAIN)
    agents_dir.write("shop/app_settings.yaml", text)
    with pytest.raises(AppLoadError) as caught:
        DirectoryAppLoader(agents_dir.path).load("shop")
    assert "app_settings.yaml" in caught.value.detail
    assert fault in caught.value.detail
