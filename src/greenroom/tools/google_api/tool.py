"""A tool that calls a method of a Google API."""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.invocation.user_context import ToolContext
from greenroom.records.auth import (
    AuthCredential,
    AuthCredentialTypes,
    OAuth2Auth,
    ServiceAccount,
    service_account_scheme_credential,
)
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.openapi.rest_api_tool import RestApiTool
from greenroom.tools.tool import BaseTool


class GoogleApiTool(BaseTool):
    """Calls a REST tool with the user's Google login, or with a service account.

    client_id, client_secret: the app's OAuth client, with which each user logs in. service_account: used in place of
    users' logins. additional_headers: sent with each request.
    """

    def __init__(
        self,
        rest_api_tool: RestApiTool,
        client_id: str | None = None,
        client_secret: str | None = None,
        service_account: ServiceAccount | None = None,
        *,
        additional_headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            name=rest_api_tool.name,
            description=rest_api_tool.description,
            is_long_running=rest_api_tool.is_long_running,
            on_interrupt=rest_api_tool.on_interrupt,
        )
        self._rest_api_tool = rest_api_tool
        if additional_headers:
            rest_api_tool.set_default_headers(additional_headers)
        if service_account is not None:
            self.configure_sa_auth(service_account)
        elif client_id is not None and client_secret is not None:
            self.configure_auth(client_id, client_secret)

    def configure_auth(self, client_id: str, client_secret: str) -> None:
        """Calls are made with each user's own login."""
        # Google issues a refresh token for certain only when the user is asked for consent.
        oauth2 = OAuth2Auth(client_id=client_id, client_secret=client_secret, prompt="consent")
        credential = AuthCredential(auth_type=AuthCredentialTypes.OPEN_ID_CONNECT, oauth2=oauth2)
        self._rest_api_tool.configure_auth_credential(credential)

    def configure_sa_auth(self, service_account: ServiceAccount) -> None:
        """Calls are made with the service account."""
        scheme, credential = service_account_scheme_credential(service_account)
        self._rest_api_tool.configure_auth_scheme(scheme)
        self._rest_api_tool.configure_auth_credential(credential)

    def _get_declaration(self) -> FunctionDeclaration:
        return self._rest_api_tool._get_declaration()  # pyright: ignore[reportPrivateUsage]

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        return await self._rest_api_tool.run_async(args=args, tool_context=tool_context)
