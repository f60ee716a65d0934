"""Reads messages in protobuf's binary format, in which Bigtable returns rows even over REST.

Source: "Encoding" of protobuf's documentation. A message is a list of fields: a tag, which is the field's number times
eight plus the wire type, then the value.

    08 96 01          field 1 (0x08 >> 3), a varint (0x08 & 7 = 0): 150
    12 02 68 69       field 2, two bytes: "hi"
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from greenroom.errors import ToolError

_VARINT = 0
_EIGHT_BYTES = 1
_LENGTH = 2
_FOUR_BYTES = 5

FieldValue = int | float | bytes
"""A varint is an int, unsigned; eight and four bytes are a float; texts, bytes and messages are bytes."""


def fields(message: bytes) -> Iterator[tuple[int, FieldValue]]:
    """The fields by number, in their order. Raises ToolError for what is no message."""
    position = 0
    try:
        while position < len(message):
            tag, position = _varint(message, position)
            wire_type = tag & 7
            if wire_type == _VARINT:
                value, position = _varint(message, position)
                yield tag >> 3, value
            elif wire_type == _LENGTH:
                length, position = _varint(message, position)
                if position + length > len(message):
                    raise IndexError
                yield tag >> 3, message[position : position + length]
                position += length
            elif wire_type == _EIGHT_BYTES:
                yield tag >> 3, struct.unpack_from("<d", message, position)[0]
                position += 8
            elif wire_type == _FOUR_BYTES:
                yield tag >> 3, struct.unpack_from("<f", message, position)[0]
                position += 4
            else:
                raise IndexError
    except (IndexError, struct.error):
        raise ToolError("Google's API answered with rows that can't be read") from None


def signed(number: int) -> int:
    """The int64 of a varint, which has negative numbers as 64 bits of two's complement."""
    return number - (1 << 64) if number >= 1 << 63 else number


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """The number, and the position after it."""
    number = 0
    for shift in range(0, 70, 7):
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise IndexError
