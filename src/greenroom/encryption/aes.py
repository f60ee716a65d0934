"""AES-256-GCM by the package cryptography, which is imported with the first key."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from greenroom.errors import MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16


@lru_cache(maxsize=64)
def cipher_of(key: bytes) -> AESGCM:
    """Raises MissingExtra."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise MissingExtra("encryption", "cryptography") from None
    return AESGCM(key)


def encrypt(key: bytes, data: bytes, associated: bytes) -> bytes:
    """Returns a random nonce and the ciphertext with its tag."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + cipher_of(key).encrypt(nonce, data, associated)


def decrypt(key: bytes, data: bytes, associated: bytes) -> bytes | None:
    """Decrypts what `encrypt` returned; None if it was changed, or encrypted otherwise."""
    from cryptography.exceptions import InvalidTag

    if len(data) < NONCE_BYTES + TAG_BYTES:
        return None
    try:
        return cipher_of(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], associated)
    except InvalidTag:
        return None
