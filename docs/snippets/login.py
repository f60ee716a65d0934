import httpx

from greenroom import (
    AuthConfig,
    AuthCredential,
    AuthCredentialTypes,
    AuthenticatedFunctionTool,
    AuthScheme,
    LlmAgent,
    OAuth2Auth,
    OAuthFlow,
    OAuthFlows,
)


def desk(provider: str, client_secret: str) -> LlmAgent:
    flow = OAuthFlow(authorization_url=f"{provider}/authorize", token_url=f"{provider}/token", scopes={"profile": ""})
    client = OAuth2Auth(client_id="desk", client_secret=client_secret)
    login = AuthConfig(
        auth_scheme=AuthScheme(type="oauth2", flows=OAuthFlows(authorization_code=flow)),
        raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=client),
    )

    async def who_am_i(credential: AuthCredential) -> dict[str, str]:
        """Returns the name of the user."""
        headers = {"authorization": f"Bearer {credential.bearer_token()}"}
        async with httpx.AsyncClient() as http:
            return (await http.get(f"{provider}/me", headers=headers)).json()

    return LlmAgent(name="desk", tools=[AuthenticatedFunctionTool(who_am_i, auth_config=login)])
