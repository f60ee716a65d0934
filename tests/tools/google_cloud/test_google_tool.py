from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.oauth2 import service_account  # pyright: ignore[reportMissingTypeStubs]
from google.oauth2.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]

from greenroom import BaseGoogleCredentialsConfig, GoogleTool, ToolContext
from greenroom.errors import MissingExtra
from greenroom.tools.login.credential_provider import PENDING
from tests.tools.google_api.server import GoogleServer, Json
from tests.tools.one_call import call_once, declared


@dataclass
class Limits:
    rows: int = 3


async def count_rows(
    table: str, credentials: Any, settings: Limits, tool_context: ToolContext, exact: bool = False
) -> Json:
    """Counts the rows of a table."""
    token = credentials.token if credentials is not None else None
    return {"table": table, "token": token, "limit": settings.rows, "user": tool_context.user_id, "exact": exact}


def count_in_a_thread(table: str, credentials: Any) -> Json:
    """Counts the rows of a table."""
    return {"table": table, "token": credentials.token}


def config(**given: Any) -> BaseGoogleCredentialsConfig:
    return BaseGoogleCredentialsConfig(**given)


async def test_the_model_sees_neither_credentials_nor_settings() -> None:
    schema = await declared(GoogleTool(count_rows, tool_settings=Limits()))
    assert schema is not None
    assert list(schema["properties"]) == ["table", "exact"]
    assert schema["required"] == ["table"]


async def test_the_function_gets_credentials_and_settings() -> None:
    given = config(credentials=Credentials(token="t-1"))
    tool = GoogleTool(count_rows, credentials_config=given, tool_settings=Limits(rows=9))
    made = await call_once(tool, "count_rows", {"table": "orders"})
    assert made.response == {"table": "orders", "token": "t-1", "limit": 9, "user": "ada", "exact": False}

    tool = GoogleTool(count_in_a_thread, credentials_config=given)
    made = await call_once(tool, "count_in_a_thread", {"table": "orders"})
    assert made.response == {"table": "orders", "token": "t-1"}


async def test_without_a_configuration_there_are_no_credentials() -> None:
    made = await call_once(GoogleTool(count_rows, tool_settings=Limits()), "count_rows", {"table": "t"})
    assert made.response["token"] is None


async def test_credentials_are_refreshed_before_the_call(google: GoogleServer) -> None:
    account = service_account.Credentials.from_service_account_info(google.service_account(), scopes=["s"])  # pyright: ignore
    tool = GoogleTool(count_rows, credentials_config=config(credentials=account), tool_settings=Limits())
    assert (await call_once(tool, "count_rows", {"table": "t"})).response["token"] == "sa-token"
    assert google.calls() == ["POST /token"]


async def test_a_user_whose_own_credentials_have_expired_is_asked_for_a_login(google: GoogleServer) -> None:
    expired = Credentials(
        token="old",
        refresh_token="refused",
        token_uri=f"{google.url}/token",
        client_id="c-1",
        client_secret="hush",
        scopes=["scope-1"],
        expiry=datetime.now(UTC).replace(tzinfo=None) - timedelta(hours=1),
    )
    tool = GoogleTool(count_rows, credentials_config=config(credentials=expired), tool_settings=Limits())
    made = await call_once(tool, "count_rows", {"table": "t"})
    assert made.response == PENDING
    (asked,) = made.actions.requested_auth_configs.values()
    assert asked["rawAuthCredential"]["oauth2"]["clientId"] == "c-1"
    assert list(asked["authScheme"]["flows"]["authorizationCode"]["scopes"]) == ["scope-1"]
    assert "hush" not in str(asked)


async def test_a_service_account_that_is_refused_is_an_error(google: GoogleServer) -> None:
    key = google.service_account()
    del google.answers["POST /token"]
    account = service_account.Credentials.from_service_account_info(key, scopes=["s"])  # pyright: ignore
    tool = GoogleTool(count_rows, credentials_config=config(credentials=account), tool_settings=Limits())
    made = await call_once(tool, "count_rows", {"table": "t"})
    assert made.response["status"] == "ERROR"
    assert "no access token" in made.response["error_details"]


async def test_an_exception_is_a_result_for_the_model() -> None:
    def fails(credentials: Any) -> None:
        """Fails."""
        raise PermissionError("403 not yours")

    made = await call_once(GoogleTool(fails), "fails", {})
    assert made.response == {"status": "ERROR", "error_details": "403 not yours"}


async def test_a_missing_package_is_not_the_models_business() -> None:
    def fails(credentials: Any) -> None:
        """Fails."""
        raise MissingExtra("google", "google-auth")

    with pytest.raises(MissingExtra, match="google-auth"):
        await call_once(GoogleTool(fails), "fails", {})
