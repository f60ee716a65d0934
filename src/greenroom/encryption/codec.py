"""Encodes the columns of stores that hold what users wrote: as they are, or encrypted.

    enc1:3:iF0j…    version 1 of this format, data key 3, then in base64: nonce (12 bytes), ciphertext, tag (16 bytes)

JSON never begins like that, so a store can distinguish encrypted values from those of the time before
encryption. The additional authenticated data is the beginning up to the last colon, and the value's place, as JSON: the
table, then what identifies the row. A value that was moved to another row can't be decrypted there.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import os
from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec

from greenroom.encryption.aes import NONCE_BYTES
from greenroom.errors import DecryptionFailed

if TYPE_CHECKING:
    from greenroom.encryption.key_ring import KeyRing

PREFIX = "enc1:"
_PREFIX = PREFIX.encode()

_encode_place = msgspec.json.encode


class Codec(Protocol):
    """Turns records in JSON into the values of columns, and back.

    place: the table, then what identifies the row, as both the writer and the reader of the row know it.
    """

    is_plain: ClassVar[bool]

    def encode(self, data: bytes, *place: str | int | None) -> str:
        """Returns the text to store. Raises KeyRefused if the store's keys can't be used."""
        ...

    def decode(self, text: str, *place: str | int | None) -> bytes:
        """Returns what was encoded. Raises DecryptionFailed, KeyRefused."""
        ...

    def encode_bytes(self, data: bytes, *place: str | int | None) -> bytes:
        """Like `encode`, for columns of bytes."""
        ...

    def decode_bytes(self, data: bytes, *place: str | int | None) -> bytes: ...

    def digest(self, text: str, *place: str | int | None) -> str:
        """Returns what is stored and compared in place of a text that queries select by: the text itself, or a keyed
        hash of it."""
        ...


class PlainCodec(Codec):
    """Stores texts as they are."""

    is_plain = True

    def encode(self, data: bytes, *place: str | int | None) -> str:
        return data.decode()

    def decode(self, text: str, *place: str | int | None) -> bytes:
        return text.encode()

    def encode_bytes(self, data: bytes, *place: str | int | None) -> bytes:
        return data

    def decode_bytes(self, data: bytes, *place: str | int | None) -> bytes:
        return data

    def digest(self, text: str, *place: str | int | None) -> str:
        return text


PLAIN = PlainCodec()


class EncryptingCodec(Codec):
    """Encrypts with the data keys of a store."""

    is_plain = False

    def __init__(self, ring: KeyRing) -> None:
        self.ring = ring

    def encode(self, data: bytes, *place: str | int | None) -> str:
        key_id, cipher = self.ring.encryption_key()
        header = f"{PREFIX}{key_id}:"
        nonce = os.urandom(NONCE_BYTES)
        sealed = nonce + cipher.encrypt(nonce, data, header.encode() + _encode_place(place))
        return header + binascii.b2a_base64(sealed, newline=False).decode()

    def decode(self, text: str, *place: str | int | None) -> bytes:
        if not text.startswith(PREFIX):
            return self._plaintext(text.encode(), place)
        _, key_id, value = text.split(":", 2)
        try:
            sealed = binascii.a2b_base64(value, strict_mode=True)
        except ValueError:
            raise DecryptionFailed(*place) from None
        return self._open(f"{PREFIX}{key_id}:".encode(), key_id, sealed, place)

    def encode_bytes(self, data: bytes, *place: str | int | None) -> bytes:
        key_id, cipher = self.ring.encryption_key()
        header = f"{PREFIX}{key_id}:".encode()
        nonce = os.urandom(NONCE_BYTES)
        return header + nonce + cipher.encrypt(nonce, data, header + _encode_place(place))

    def decode_bytes(self, data: bytes, *place: str | int | None) -> bytes:
        if not data.startswith(_PREFIX):
            return self._plaintext(data, place)
        end = data.find(b":", len(_PREFIX))
        return self._open(data[: end + 1], data[len(_PREFIX) : end].decode("ascii", "replace"), data[end + 1 :], place)

    def digest(self, text: str, *place: str | int | None) -> str:
        message = _encode_place((*place, text))
        return hmac.new(self.ring.index_key(), message, hashlib.sha256).hexdigest()[:32]

    def _open(self, header: bytes, key_id: str, sealed: bytes, place: tuple[str | int | None, ...]) -> bytes:
        from cryptography.exceptions import InvalidTag

        cipher = self.ring.decryption_key(int(key_id)) if key_id.isdecimal() and len(key_id) < 10 else None
        if cipher is None or len(sealed) < NONCE_BYTES:
            raise DecryptionFailed(*place)
        try:
            return cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], header + _encode_place(place))
        except InvalidTag:
            raise DecryptionFailed(*place) from None

    def _plaintext(self, data: bytes, place: tuple[str | int | None, ...]) -> bytes:
        """A value of a database that was not encrypted from the start. Later, it can only be a forged one."""
        if not self.ring.allows_plaintext():
            raise DecryptionFailed(*place)
        return data
