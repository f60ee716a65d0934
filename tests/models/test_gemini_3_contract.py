"""Gemini 3 against the exchanges of the contract of models: other thinking options, the same failures."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.testing.contracts.model.exchanges import *  # noqa: F403
from tests.models.test_gemini_contract import GenerateContent, serving_gemini


@pytest.fixture
async def provider() -> AsyncIterator[GenerateContent]:
    async with serving_gemini("gemini-3-pro") as server:
        yield server
