"""Ed25519 keys that sign the heads of audit chains."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.errors import AgentConfigError, MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_PURPOSE = b"greenroom-audit-head:"
"""Precedes the hash in what is signed, so that a signature can't be taken for one of something else."""


class HeadSigner:
    """Signs heads with a private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.signed_by = fingerprint(key.public_key())

    @classmethod
    def load(cls, key: str) -> HeadSigner:
        """Reads a private key. key: the path of a PEM file, or its text. Raises AgentConfigError, MissingExtra."""
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError:
            raise MissingExtra("audit", "cryptography") from None

        try:
            private = load_pem_private_key(_pem(key), password=None)
        except (OSError, ValueError, TypeError) as error:
            raise AgentConfigError(f"The key of the audit trail can't be read: {error}") from None
        if not isinstance(private, Ed25519PrivateKey):
            raise AgentConfigError(
                "The key of the audit trail must be an Ed25519 key; make one: greenroom audit keygen"
            )
        return cls(private)

    def sign(self, head_hash: str) -> str:
        return self._key.sign(_PURPOSE + head_hash.encode()).hex()

    def verifier(self) -> HeadVerifier:
        """Checks what this key has signed."""
        return HeadVerifier([self._key.public_key()])


class HeadVerifier:
    """Checks the signatures of heads with public keys."""

    def __init__(self, keys: list[Ed25519PublicKey]) -> None:
        self._keys = {fingerprint(key): key for key in keys}

    @classmethod
    def load(cls, paths: list[str]) -> HeadVerifier:
        """Reads public keys, or private keys with theirs. Raises AgentConfigError, MissingExtra."""
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
        except ImportError:
            raise MissingExtra("audit", "cryptography") from None

        keys: list[Ed25519PublicKey] = []
        for path in paths:
            try:
                pem = _pem(path)
                if b"PRIVATE KEY" in pem:
                    private = load_pem_private_key(pem, password=None)
                    key = private.public_key() if isinstance(private, Ed25519PrivateKey) else None
                else:
                    key = load_pem_public_key(pem)
            except (OSError, ValueError, TypeError) as error:
                raise AgentConfigError(f"The public key can't be read: {error}") from None
            if not isinstance(key, Ed25519PublicKey):
                raise AgentConfigError(f"{path} must hold an Ed25519 key")
            keys.append(key)
        return cls(keys)

    def knows(self, signed_by: str) -> bool:
        return signed_by in self._keys

    def is_valid(self, signed_by: str, head_hash: str, signature: str) -> bool:
        from cryptography.exceptions import InvalidSignature

        key = self._keys.get(signed_by)
        if key is None:
            return False
        try:
            data = bytes.fromhex(signature)
            if data.hex() != signature:  # upper case, or spaces
                return False
            key.verify(data, _PURPOSE + head_hash.encode())
        except (InvalidSignature, ValueError):
            return False
        return True


def new_key_pair() -> tuple[bytes, bytes]:
    """Returns a new private key and its public key, as PEM. Raises MissingExtra."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
    except ImportError:
        raise MissingExtra("audit", "cryptography") from None

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private, public


def fingerprint(key: Ed25519PublicKey) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a public key."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def _pem(key: str) -> bytes:
    return key.encode() if key.lstrip().startswith("-----BEGIN") else Path(key).read_bytes()
