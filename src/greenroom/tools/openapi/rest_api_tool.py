"""A tool that calls an operation of an API."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.auth import (
    AuthConfig,
    AuthCredential,
    AuthSchemeLike,
    CredentialParts,
    credential_parts,
    to_auth_scheme,
)
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.login.credential_provider import CredentialProvider, TokenExchange
from greenroom.tools.openapi.operation import ApiOperation
from greenroom.tools.openapi.request import PreparedRequest, missing_arguments, prepare
from greenroom.tools.result import shortened
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import HeaderProvider, provided_headers
from greenroom.tools.value_types.plain_types import InvalidValue
from greenroom.tools.web.http_client import HttpClient, HttpReply
from greenroom.version import __version__

MAX_ERROR_CHARACTERS = 2_000
_SHORTEST_SECRET = 4
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


class RestApiTool(BaseTool):
    """Returns errors of a call to the model.

    header_provider: additional headers of each request; they override headers of the same name,
    except credentials.
    """

    def __init__(
        self,
        operation: ApiOperation,
        client: HttpClient,
        *,
        exchange: TokenExchange | None = None,
        auth_scheme: AuthSchemeLike | None = None,
        auth_credential: AuthCredential | None = None,
        credential_key: str | None = None,
        header_provider: HeaderProvider | None = None,
    ) -> None:
        super().__init__(
            name=operation.name,
            description=operation.description,
            on_interrupt="retry" if operation.method in _IDEMPOTENT else "report",
        )
        self.operation = operation
        self._client = client
        self._header_provider = header_provider
        self._default_headers: dict[str, str] = {}
        self._exchange = exchange or TokenExchange(client)
        self._credential_key = credential_key
        self._credentials: CredentialProvider | None = None
        scheme = auth_scheme or operation.auth_scheme
        if scheme is not None:
            self._authenticate(scheme, auth_credential)

    def configure_auth_scheme(self, auth_scheme: AuthSchemeLike) -> None:
        """Replaces how calls are authenticated; the credential stays."""
        self._authenticate(
            auth_scheme,
            self.auth_config.raw_auth_credential if self.auth_config else None,
        )

    def configure_auth_credential(self, auth_credential: AuthCredential | None = None) -> None:
        """Replaces the app's own credential. Without an authentication scheme, calls don't use it."""
        if self.auth_config is not None:
            self._authenticate(self.auth_config.auth_scheme, auth_credential)

    def set_default_headers(self, headers: Mapping[str, str]) -> None:
        """Sets the headers of each request. Headers of the header provider override them."""
        self._default_headers = dict(headers)

    def _authenticate(self, scheme: AuthSchemeLike, credential: AuthCredential | None) -> None:
        config = AuthConfig(
            auth_scheme=to_auth_scheme(scheme), raw_auth_credential=credential, credential_key=self._credential_key
        )
        self._credentials = CredentialProvider(config, self._exchange)

    @property
    def auth_config(self) -> AuthConfig | None:
        """The credential that the tool needs, secrets included: not for clients."""
        if self._credentials is not None:
            return self._credentials.config
        return None

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self.operation.arguments_schema()
        )

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        missing = missing_arguments(self.operation, args)
        if missing:
            listed = "\n".join(missing)
            return {
                "error": f"{self.name} was not called, because these mandatory arguments are missing:\n{listed}\n"
                "Call it again with all of them."
            }

        try:
            request = prepare(self.operation, args)
        except InvalidValue as fault:
            return {"error": f"{self.name} was not called, because of this argument:\n{fault.detail}"}

        await self._add_headers(request, tool_context)

        try:
            return await self._call(request, tool_context)
        except ToolError as error:
            return {"error": f"{self.name} failed: {error.detail}."}

    async def _add_headers(self, request: PreparedRequest, tool_context: ToolContext) -> None:
        own = {"User-Agent": f"greenroom/{__version__} (tool: {self.name})"}
        own |= self._default_headers
        own |= await provided_headers(self._header_provider, tool_context)
        replaced = {name.lower() for name in own}
        kept = {name: value for name, value in request.headers.items() if name.lower() not in replaced}
        request.headers = {**kept, **own}

    async def _call(self, request: PreparedRequest, tool_context: ToolContext) -> JsonValue:
        credentials = self._credentials
        if credentials is None:
            return self._result(await self._send(request, None), None, None)

        credential: AuthCredential | None = None
        for attempt in (1, 2):
            credential = await credentials.credential(tool_context, refused=credential)
            if credential is None and (attempt == 2 or not self.operation.auth_is_optional):
                break

            if credential is not None:
                parts = credential_parts(credentials.config.auth_scheme, credential)
            else:
                parts = None

            reply = await self._send(request, parts)
            if reply.status != 401:
                return self._result(reply, credential, parts)

        return credentials.request(tool_context)

    async def _send(self, request: PreparedRequest, parts: CredentialParts | None) -> HttpReply:
        full = request.with_credential(parts)
        return await self._client.send(
            full.method,
            full.full_url(),
            headers=full.all_headers(),
            content=full.content,
            files=full.files,
            secret_headers=parts.headers if parts else (),
        )

    def _result(
        self,
        reply: HttpReply,
        credential: AuthCredential | None,
        parts: CredentialParts | None,
    ) -> JsonValue:
        if 200 <= reply.status < 300:
            return reply.json_or_text()

        body = shortened(_redacted(reply.text(), credential, parts), MAX_ERROR_CHARACTERS)
        return {
            "error": f"{self.name} failed with status {reply.status} {reply.reason}: {body}\n"
            "If other arguments would help, call it again with those, at most three times; otherwise continue "
            "without it."
        }


def _redacted(text: str, credential: AuthCredential | None, parts: CredentialParts | None) -> str:
    """Removes secrets from an error, because some servers echo requests."""
    secrets = set(credential.secrets() if credential is not None else ())
    if parts is not None:
        sent = [*parts.headers.values(), *parts.query.values(), *parts.cookies.values()]
        secrets |= {value.rpartition(" ")[2] for value in sent}

    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")

    return text
