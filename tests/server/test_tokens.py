"""Tokens of an identity provider, a real one on this machine that publishes and changes its keys."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from greenroom.errors import AgentConfigError, Unauthenticated, Unavailable
from greenroom.records.access import Role
from greenroom.server.access import tokens
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.access.tokens import TokenVerifier
from greenroom.server.settings import AuthSettings, TokenSettings
from tests.server.conftest import Serve
from tests.server.serving import until

ISSUER = "https://login.example/"
AUDIENCE = "greenroom"

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


class Clock:
    """Moves only when the test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Provider:
    """Publishes the keys in `keys`, by id; counts how often it is asked."""

    def __init__(self) -> None:
        self.keys: dict[str, dict[str, Any]] = {
            "rsa": RSAAlgorithm.to_jwk(RSA_KEY.public_key(), as_dict=True),
            "ec": ECAlgorithm.to_jwk(EC_KEY.public_key(), as_dict=True),
            "ed": OKPAlgorithm.to_jwk(ED_KEY.public_key(), as_dict=True),
            "secret": {"kty": "oct", "k": base64.urlsafe_b64encode(b"x" * 32).decode(), "alg": "HS256"},
        }
        self.asked = 0
        self.is_down = False
        self.url = ""

    @contextmanager
    def running(self) -> Generator[Provider]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                self.send_response(503 if provider.is_down else 200)
                self.end_headers()
                keys = [{"kid": kid, "use": "sig", **key} for kid, key in provider.keys.items()]
                self.wfile.write(json.dumps({"keys": keys}).encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}/jwks.json"
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def settings(self, **more: Any) -> TokenSettings:
        given: dict[str, Any] = {"jwks_url": self.url, "issuer": ISSUER, "audiences": (AUDIENCE,), **more}
        return TokenSettings(**given)

    def verifier(
        self, *, clock: Callable[[], float] = time.monotonic, max_verified: int = 100, **more: Any
    ) -> TokenVerifier:
        return TokenVerifier(self.settings(**more), new_key_seconds=0, clock=clock, max_verified=max_verified)


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider().running() as provider:
        yield provider


def token(key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "rsa", **claims: Any) -> str:
    now = time.time()
    filled = {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600, "scope": "run read", **claims}
    filled = {name: value for name, value in filled.items() if value is not None}
    return jwt.encode(filled, key, algorithm=algorithm, headers={} if kid is None else {"kid": kid})


def by_hand(header: dict[str, Any], claims: dict[str, Any] | None = None, *, secret: bytes | None = None) -> str:
    """A token that no library would make."""
    now = time.time()
    claims = claims or {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": now + 600, "scope": "run read admin"}
    signed = ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)
    )
    signature = b"" if secret is None else hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"), [(RSA_KEY, "RS256", "rsa"), (EC_KEY, "ES256", "ec"), (ED_KEY, "EdDSA", "ed")]
)
async def test_a_good_token_says_who_calls(provider: Provider, key: Any, algorithm: str, kid: str) -> None:
    made = token(key, algorithm, kid, scope="openid run app:echo unknown", apps=["echo", "x"])
    found, _ = await provider.verifier().identify(made)
    assert (found.subject, found.scopes, found.apps) == ("ann", {"run", "app:echo"}, {"echo", "x"})
    assert found.expires_at is not None
    assert found.expires_at > time.time() + 600


async def test_claims_may_have_other_names_and_forms(provider: Provider) -> None:
    names: dict[str, Any] = {"subject_claim": "email", "scopes_claim": "scp", "apps_claim": "groups"}
    verifier = provider.verifier(**names, audiences=("other", AUDIENCE), default_scopes=("read",))
    found, _ = await verifier.identify(token(email="a@b.example", scp=["debug"], groups="one two", aud=["x", AUDIENCE]))
    assert (found.subject, found.scopes, found.apps) == ("a@b.example", {"debug"}, {"one", "two"})
    found, _ = await verifier.identify(token(email="a@b.example", scp="openid"))
    assert (found.scopes, found.apps) == ({"read"}, None)
    assert not (await provider.verifier().identify(token(scope="openid")))[0].scopes
    assert (await verifier.identify(token(email="a@b.example", groups=[])))[0].apps == frozenset()


PUBLIC_PEM = RSA_KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
PUBLIC_DER = RSA_KEY.public_key().public_bytes(
    serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
)

FORGED = {
    "signed with another key": lambda: token(OTHER_RSA_KEY),
    "signed with another kind of key": lambda: token(EC_KEY, "ES256", "rsa"),
    "none": lambda: by_hand({"alg": "none", "kid": "rsa"}),
    "None": lambda: by_hand({"alg": "None", "kid": "rsa"}),
    "nOnE without kid": lambda: by_hand({"alg": "nOnE"}),
    "no algorithm": lambda: by_hand({"kid": "rsa"}),
    "an algorithm that is no text": lambda: by_hand({"alg": ["RS256"], "kid": "rsa"}),
    "none with the signature of a good one": lambda: by_hand({"alg": "none"}) + token().split(".")[2],
    "HS256 with the public key": lambda: by_hand({"alg": "HS256", "kid": "rsa"}, secret=PUBLIC_PEM),
    "HS256 with the public key in DER": lambda: by_hand({"alg": "HS256", "kid": "rsa"}, secret=PUBLIC_DER),
    "HS256 with a published secret": lambda: by_hand({"alg": "HS256", "kid": "secret"}, secret=b"x" * 32),
    "RS256 said, HS256 done": lambda: by_hand({"alg": "RS256", "kid": "rsa"}, secret=PUBLIC_PEM),
    "an algorithm that is not accepted": lambda: token(algorithm="RS512"),
    "an unknown key": lambda: token(OTHER_RSA_KEY, kid="nowhere"),
    "a key of its own": lambda: jwt.encode(
        {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600},
        OTHER_RSA_KEY,
        algorithm="RS256",
        headers={
            "kid": "rsa",
            "jwk": RSAAlgorithm.to_jwk(OTHER_RSA_KEY.public_key(), as_dict=True),
            "jku": "https://x",
        },
    ),
    "a critical header": lambda: jwt.encode(
        {"sub": "ann", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 600},
        RSA_KEY,
        algorithm="RS256",
        headers={"kid": "rsa", "crit": ["new"], "new": True},
    ),
    "without kid, of several keys": lambda: token(kid=None),
    "expired": lambda: token(exp=time.time() - 31),
    "without an end": lambda: token(exp=None),
    "an end that is no time": lambda: token(exp="tomorrow"),
    "not yet good": lambda: token(nbf=time.time() + 60),
    "issued in the future": lambda: token(iat=time.time() + 60),
    "for another audience": lambda: token(aud="other"),
    "for no audience": lambda: token(aud=None),
    "of another issuer": lambda: token(iss="https://login.example"),
    "of no issuer": lambda: token(iss=None),
    "of nobody": lambda: token(sub=None),
    "of an empty subject": lambda: token(sub=""),
    "scopes that are no words": lambda: token(scope={"admin": True}),
    "scopes with a number": lambda: token(scope=["run", 1]),
    "apps that are no words": lambda: token(apps=5),
    "a changed claim": lambda: ".".join((token().split(".")[0], by_hand({}).split(".")[1], token().split(".")[2])),
    "nothing": lambda: "",
    "dots": lambda: "..",
    "noise": lambda: "a.b.c",
    "a very long one": lambda: token(scope="x" * 20_000),
    "not ASCII": lambda: "é.é.é",
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_a_bad_token_is_refused(provider: Provider, forged: Any) -> None:
    made = forged()
    with pytest.raises(Unauthenticated) as caught:
        await provider.verifier().identify(made)
    assert not made or made not in caught.value.detail


async def test_a_clock_may_be_a_little_off(provider: Provider) -> None:
    verifier = provider.verifier()
    for made in (token(exp=time.time() - 20), token(nbf=time.time() + 20), token(iat=time.time() + 20)):
        await verifier.identify(made)
    with pytest.raises(Unauthenticated):
        await provider.verifier(leeway_seconds=0).identify(token(exp=time.time() - 1))


async def test_keys_are_kept_and_new_ones_asked_for(provider: Provider) -> None:
    verifier = provider.verifier()
    for _ in range(5):
        await verifier.identify(token())
        await verifier.identify(token(EC_KEY, "ES256", "ec"))
    assert provider.asked == 1
    provider.keys = {"new": RSAAlgorithm.to_jwk(OTHER_RSA_KEY.public_key(), as_dict=True)}
    await verifier.identify(token(OTHER_RSA_KEY, kid="new"))
    assert provider.asked == 2
    await verifier.identify(token(OTHER_RSA_KEY, kid="new"))
    assert provider.asked == 2


async def test_a_token_that_is_known_expires_like_any_other(provider: Provider) -> None:
    verifier = provider.verifier(leeway_seconds=0)
    short = token(exp=time.time() + 2)
    first = await verifier.identify(short)
    assert await verifier.identify(short) is first
    with pytest.raises(Unauthenticated):
        await verifier.identify(short[:-4] + "AAAA")
    async with asyncio.timeout(5):
        with pytest.raises(Unauthenticated, match="expired"):
            while True:
                assert await verifier.identify(short) is first
                await asyncio.sleep(0.02)


async def test_a_withdrawn_keys_known_tokens_are_forgotten(provider: Provider) -> None:
    clock = Clock()
    verifier = provider.verifier(clock=clock)
    made = token()
    assert await verifier.identify(made) is await verifier.identify(made)
    del provider.keys["rsa"]
    clock.now += tokens.FETCH_AGAIN_SECONDS - 1
    await verifier.identify(made)
    clock.now += 1
    with pytest.raises(Unauthenticated):
        await verifier.identify(made)


async def test_the_tokens_that_are_known_are_not_too_many(provider: Provider) -> None:
    verifier = provider.verifier(max_verified=3)
    made = [token(sub=f"u{number}") for number in range(10)]
    first = [await verifier.identify(one) for one in made]
    assert [verified.identity.subject for verified in first] == [f"u{number}" for number in range(10)]
    again = [await verifier.identify(one) for one in reversed(made)]
    remembered = [one is other for one, other in zip(reversed(first), again, strict=True)]
    assert remembered[0]
    assert remembered.count(True) <= 3


async def test_made_up_key_ids_do_not_reach_the_provider_each_time(provider: Provider) -> None:
    verifier = TokenVerifier(provider.settings())
    await verifier.identify(token())
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await verifier.identify(token(OTHER_RSA_KEY, kid=f"made-up-{number}"))
    assert provider.asked <= 2


async def test_a_withdrawn_key_is_forgotten(provider: Provider) -> None:
    clock = Clock()
    verifier = provider.verifier(clock=clock)
    await verifier.identify(token())
    del provider.keys["rsa"]
    clock.now += tokens.FETCH_AGAIN_SECONDS
    with pytest.raises(Unauthenticated):
        await verifier.identify(token())


async def test_while_the_provider_is_down_its_known_keys_hold(provider: Provider) -> None:
    clock = Clock()
    verifier = provider.verifier(clock=clock)
    await verifier.identify(token())
    provider.is_down = True
    clock.now += tokens.KEEP_SECONDS - 1
    await verifier.identify(token())
    with pytest.raises(Unavailable):
        await provider.verifier().identify(token())
    clock.now += 1
    with pytest.raises(Unavailable):
        await verifier.identify(token())


async def test_one_published_key_needs_no_name(provider: Provider) -> None:
    provider.keys = {"rsa": provider.keys["rsa"]}
    assert (await provider.verifier().identify(token(kid=None))).identity.subject == "ann"


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": None},
        {"audiences": ()},
        {"jwks_url": "http://login.example/jwks"},
        {"jwks_url": "file:///etc/passwd"},
        {"jwks_url": "login.example"},
        {"jwks_url": "https://"},
        {"jwks_url": "http://127.0.0.1.login.example/"},
    ],
)
def test_settings_that_would_let_anybody_in_are_refused(provider: Provider, wrong: dict[str, Any]) -> None:
    with pytest.raises(AgentConfigError):
        provider.verifier(**wrong)


async def test_roles_of_a_token_are_those_of_a_claim_that_a_setting_names(
    serve: Serve, provider: Provider, tmp_path: Path
) -> None:
    file = ApiKeyFile(tmp_path / "keys.db")
    file.change(lambda records: records.with_role(Role(name="support", scopes=["read"])))
    auth = AuthSettings(keys=str(file.path), tokens=provider.settings(roles_claim="groups", default_scopes=("run",)))
    server = await serve(auth=auth)

    async def scopes(**claims: Any) -> list[str]:
        headers = {"authorization": f"Bearer {token(**claims)}"}
        answer = await server.client.get("/me", headers=headers)
        return answer.json()["scopes"] if answer.is_success else [answer.json()["code"]]

    assert await scopes(scope=None, groups=["support", "unknown"]) == ["read"]
    assert await scopes(scope=None, groups="developer") == ["debug", "manage", "read", "run"]
    assert await scopes(scope=None, roles=["admin"]) == ["run"]  # a claim that no setting names
    assert await scopes(sub="service:ci") == ["Unauthenticated"]

    support = {"scope": None, "groups": ["support"], "exp": time.time() + 900, "iat": 1.0}
    assert await scopes(**support) == ["read"]
    file.change(lambda records: records.with_role(Role(name="support", scopes=["read", "debug"])))

    async def has_changed() -> bool:
        return await scopes(**support) == ["debug", "read"]

    await until(has_changed, seconds=2)


async def test_tokens_over_http(serve: Serve, provider: Provider) -> None:
    server = await serve(auth=AuthSettings(tokens=provider.settings()))

    async def status(path: str, made: str) -> int:
        return (await server.client.get(path, headers={"authorization": f"Bearer {made}"})).status_code

    assert await status("/apps/echo/users/ann/sessions", token()) == 200
    assert await status("/apps/echo/users/bob/sessions", token()) == 403
    assert await status("/apps/echo/users/bob/sessions", token(scope="read app:echo")) == 200
    assert await status("/apps/echo/users/ann/sessions", token(scope="run")) == 403
    assert await status("/apps/echo/users/ann/sessions", token(apps=["other"])) == 403
    assert await status("/apps/echo/users/ann/sessions", token(OTHER_RSA_KEY)) == 401
    assert await status("/apps/echo/users/ann/sessions", "gr_0123456789_x") == 401
    provider.is_down = True
    assert await status("/apps/echo/users/ann/sessions", token(OTHER_RSA_KEY, kid="other")) in (401, 503)
