"""Encrypts contents of any size piece by piece, with AES-256-GCM.

    GRE1 | data key id (4 bytes) | salt (32 bytes) | piece 0 | piece 1 | …

Each content has a key of its own, which HKDF derives from the data key, the random salt and the place of the content.
The nonce of a piece is its number and whether it is the last one, so that pieces can't be exchanged, left out, repeated
or cut off, and no nonce is used twice. (STREAM of Hoang, Reyhanitabar, Rogaway and Vizár.) All pieces but the last have
64 KiB, and 16 bytes for their tags.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterator

import msgspec

from greenroom.encryption.aes import KEY_BYTES, TAG_BYTES, cipher_of
from greenroom.errors import DecryptionFailed

MAGIC = b"GRE1"
SALT_BYTES = 32
HEADER_BYTES = len(MAGIC) + 4 + SALT_BYTES
PIECE_BYTES = 64 * 1024

_SEALED_PIECE_BYTES = PIECE_BYTES + TAG_BYTES


def new_header(key_id: int) -> bytes:
    return MAGIC + key_id.to_bytes(4) + os.urandom(SALT_BYTES)


def key_id_of(header: bytes) -> int | None:
    """The id of the data key; None for other bytes than those of a header."""
    if len(header) != HEADER_BYTES or not header.startswith(MAGIC):
        return None
    return int.from_bytes(header[len(MAGIC) : len(MAGIC) + 4])


def plain_size(size: int) -> int:
    """The size of a content, of the size of its encrypted form."""
    sealed = size - HEADER_BYTES
    pieces = max(-(-sealed // _SEALED_PIECE_BYTES), 1)
    return sealed - pieces * TAG_BYTES


def content_key(data_key: bytes, header: bytes, place: tuple[str, ...]) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    salt = header[-SALT_BYTES:]
    return HKDF(SHA256(), KEY_BYTES, salt, msgspec.json.encode(place)).derive(data_key)


def encrypt_content(key: bytes, content: bytes) -> bytes:
    """Returns the pieces, without the header."""
    view = memoryview(content)
    return b"".join(
        _seal(key, number, view[at : at + PIECE_BYTES], is_last=is_last) for number, at, is_last in _pieces(content)
    )


def _pieces(content: bytes) -> Iterator[tuple[int, int, bool]]:
    """Numbers and positions of the pieces, and which is the last."""
    last = max(-(-len(content) // PIECE_BYTES), 1) - 1
    for number in range(last + 1):
        yield number, number * PIECE_BYTES, number == last


def decrypt_content(key: bytes, sealed: bytes, place: tuple[str, ...]) -> bytes:
    """Decrypts all pieces. Raises DecryptionFailed."""
    view = memoryview(sealed)
    last = max(-(-len(sealed) // _SEALED_PIECE_BYTES), 1) - 1
    return b"".join(
        _open(
            key,
            number,
            view[number * _SEALED_PIECE_BYTES : (number + 1) * _SEALED_PIECE_BYTES],
            place,
            is_last=number == last,
        )
        for number in range(last + 1)
    )


async def encrypt_chunks(key: bytes, chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Encrypts a content as it arrives; holds a piece of it."""
    rest = bytearray()
    number = 0
    async for chunk in chunks:
        rest += chunk
        while len(rest) > PIECE_BYTES:  # one of exactly this size may be the last
            yield _seal(key, number, bytes(rest[:PIECE_BYTES]), is_last=False)
            del rest[:PIECE_BYTES]
            number += 1
    yield _seal(key, number, bytes(rest), is_last=True)


async def decrypt_chunks(key: bytes, chunks: AsyncIterable[bytes], place: tuple[str, ...]) -> AsyncIterator[bytes]:
    """Decrypts the pieces as they arrive. Raises DecryptionFailed, also at the end when some are missing."""
    rest = bytearray()
    number = 0
    async for chunk in chunks:
        rest += chunk
        while len(rest) > _SEALED_PIECE_BYTES:
            yield _open(key, number, bytes(rest[:_SEALED_PIECE_BYTES]), place, is_last=False)
            del rest[:_SEALED_PIECE_BYTES]
            number += 1
    yield _open(key, number, bytes(rest), place, is_last=True)


def _seal(key: bytes, number: int, piece: bytes | memoryview, *, is_last: bool) -> bytes:
    return cipher_of(key).encrypt(_nonce(number, is_last=is_last), piece, None)


def _open(key: bytes, number: int, piece: bytes | memoryview, place: tuple[str, ...], *, is_last: bool) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher_of(key).decrypt(_nonce(number, is_last=is_last), piece, None)
    except (InvalidTag, ValueError):
        raise DecryptionFailed(*place) from None


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11) + bytes([is_last])
