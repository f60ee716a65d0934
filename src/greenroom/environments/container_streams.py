"""The standard streams of a container, as asyncio's."""

from __future__ import annotations

import asyncio
import socket
import struct

_STDOUT = 1
_HEADER = struct.Struct(">BxxxL")
"""The stream and the size of a frame."""

_MAX_STDERR_BYTES = 10_000


class ContainerStreams(asyncio.StreamReaderProtocol):
    """Separates stdout from stderr in what a container's socket receives.

    stderr: its beginning.

    Source of the format: "Stream format" of attaching to a container, in the reference of Docker's API.
    """

    def __init__(self, stdout: asyncio.StreamReader) -> None:
        super().__init__(stdout)
        self.stderr = bytearray()
        self._header = bytearray()
        self._stream = 0
        self._bytes_left = 0

    def data_received(self, data: bytes) -> None:
        while data:
            if self._bytes_left == 0:
                data = self._read_header(data)
            else:
                data = self._read_payload(data)

    def _read_header(self, data: bytes) -> bytes:
        missing = _HEADER.size - len(self._header)
        self._header += data[:missing]
        if len(self._header) == _HEADER.size:
            self._stream, self._bytes_left = _HEADER.unpack(self._header)
            self._header.clear()
        return data[missing:]

    def _read_payload(self, data: bytes) -> bytes:
        payload = data[: self._bytes_left]
        self._bytes_left -= len(payload)
        if self._stream == _STDOUT:
            super().data_received(payload)
        else:
            self.stderr += payload[: _MAX_STDERR_BYTES - len(self.stderr)]
        return data[len(payload) :]


async def open_streams(
    connection: socket.socket,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, ContainerStreams]:
    """Returns the container's stdout and stdin. Takes over the socket, which closing the writer closes."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    streams = ContainerStreams(reader)
    if connection.family == socket.AF_UNIX:
        transport, _ = await loop.create_unix_connection(lambda: streams, sock=connection)
    else:
        transport, _ = await loop.create_connection(lambda: streams, sock=connection)
    return reader, asyncio.StreamWriter(transport, streams, reader, loop), streams
