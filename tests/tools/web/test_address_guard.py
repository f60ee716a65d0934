from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from starlette.responses import JSONResponse, RedirectResponse

from greenroom.invocation.user_context import ToolContext
from greenroom.tools.openapi.toolset import OpenAPIToolset
from greenroom.tools.web import address_guard
from greenroom.tools.web.address_guard import AddressRefused, check_host, is_public, public_addresses
from tests.tools.openapi.conftest import Api
from tests.tools.openapi.conftest import api as api


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "::1", "[::1]", "fe80::1", "fd00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::",
        "localhost", "LOCALHOST.", "app.localhost", "printer.local", "metadata.google.internal",
    ],
)  # fmt: skip
async def test_hosts_within_are_refused(host: str) -> None:
    with pytest.raises(AddressRefused):
        await public_addresses(host, 80)


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "127.1"])
async def test_loopback_by_other_spellings_is_refused(host: str) -> None:
    with pytest.raises((AddressRefused, OSError)):
        await public_addresses(host, 80)


@pytest.mark.parametrize("host", ["8.8.8.8", "2001:4860:4860::8888", "example.com", "internal.example.com", "mylocal"])
def test_other_hosts_are_not_refused_by_name(host: str) -> None:
    check_host(host)


@pytest.mark.parametrize("address", ["1.1.1.1", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_in_any_form_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


class _Names:
    """The one thing that is asked of a loop here, so that no test asks a name server."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses
        self.asked: list[str] = []

    async def getaddrinfo(self, host: str, port: int, **options: Any) -> list[Any]:
        self.asked.append(host)
        return [(2, 1, 6, "", (address, port)) for address in self.addresses]


def answer_names(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> _Names:
    names = _Names(*addresses)

    class Loop:
        @staticmethod
        def get_running_loop() -> _Names:
            return names

    monkeypatch.setattr(address_guard, "asyncio", Loop)
    return names


async def test_a_name_with_one_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answer_names(monkeypatch, "8.8.8.8", "10.0.0.1")
    with pytest.raises(AddressRefused):
        await public_addresses("api.test", 443)


async def test_a_private_api_is_not_called_unless_that_is_allowed(api: Api, tool_context: ToolContext) -> None:
    toolset = OpenAPIToolset(spec_dict=api.document({"/it": {"get": {"operationId": "do_it"}}}))
    tool = toolset.get_tool("do_it")
    assert tool is not None
    answer = await tool.run_async(args={}, tool_context=tool_context)
    assert "is not a public address" in answer["error"]
    assert api.seen == []
    assert await api.call({}, {}) == {}


async def test_the_address_that_was_looked_at_is_the_one_called(
    api: Api, tool_context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were the name asked for again to connect, the second answer might be another."""
    names = answer_names(monkeypatch, "127.0.0.1")
    port = int(api.url.rpartition(":")[2])
    monkeypatch.setattr(address_guard, "is_public", ipaddress.ip_address("127.0.0.1").__eq__)
    toolset = OpenAPIToolset(
        spec_dict=api.document({"/it": {"get": {"operationId": "do_it"}}}), base_url=f"http://api.test:{port}/v1"
    )
    tool = toolset.get_tool("do_it")
    assert tool is not None
    assert await tool.run_async(args={}, tool_context=tool_context) == {}
    assert (api.last.path, api.last.headers["host"]) == ("/v1/it", f"api.test:{port}")
    assert names.asked == ["api.test"]

    api.answers = [RedirectResponse("http://10.0.0.1/secrets"), JSONResponse({})]
    answer = await tool.run_async(args={}, tool_context=tool_context)
    assert "'10.0.0.1' is not a public address" in answer["error"]
    await toolset.close()


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_proxy_does_not_look_up_names_behind_the_guards_back(
    api: Api, tool_context: ToolContext, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    """The API's own server stands in for the proxy: a request through one names the whole URL."""
    monkeypatch.setenv("HTTP_PROXY", api.url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    answer_names(monkeypatch, "127.0.0.1")
    monkeypatch.setattr(address_guard, "is_public", ipaddress.ip_address("127.0.0.1").__eq__)
    toolset = OpenAPIToolset(
        spec_dict=api.document({"/it": {"get": {"operationId": "do_it"}}}),
        base_url="http://api.test:1",
        allow_private_network_access=allowed,
    )
    tool = toolset.get_tool("do_it")
    assert tool is not None
    answer = await tool.run_async(args={}, tool_context=tool_context)
    assert [seen.headers["host"] for seen in api.seen] == (["api.test:1"] if allowed else [])
    assert ("error" in answer) is not allowed
    await toolset.close()
