"""Receives the files that a browser's pages download."""

from __future__ import annotations

import asyncio
import functools
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.tools.computer_use.computer import DownloadedFile

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Download, Page

MAX_FILES = 10
_POLL_SECONDS = 0.1


class Downloads:
    """Receives files in a temporary folder, within limits of their number and size.

    Playwright doesn't say how much of a file has arrived, nor which file of the folder is whose. So when a file of the
    folder is too large, the newest downloads are cancelled until none is.

    max_bytes: of a file.
    max_files: of a session, which are received and not yet taken.
    """

    def __init__(self, *, max_bytes: int, max_files: int = MAX_FILES) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="greenroom-downloads-"))
        self._max_bytes = max_bytes
        self._max_files = max_files
        self._tasks: dict[BrowserContext, list[tuple[Download, asyncio.Task[DownloadedFile]]]] = {}
        self._active: list[Download] = []

    def follow(self, context: BrowserContext) -> None:
        """Receives what pages download that are opened from now on."""
        self._tasks[context] = []

        def follow_page(page: Page) -> None:
            page.on("download", functools.partial(self._start, context))

        context.on("page", follow_page)

    def _start(self, context: BrowserContext, download: Download) -> None:
        tasks = self._tasks.get(context)
        if tasks is None:
            return

        is_refused = len(tasks) >= self._max_files
        tasks.append((download, asyncio.create_task(self._receive(download, is_refused=is_refused))))

    async def _receive(self, download: Download, *, is_refused: bool) -> DownloadedFile:
        from playwright.async_api import Error

        name = download.suggested_filename
        try:
            if is_refused:
                await download.cancel()
                return DownloadedFile(name=name, error=f"more than {self._max_files} downloads at once")

            failure = await self._end_of(download)
            if failure is not None:
                return DownloadedFile(name=name, error=failure)

            data = await asyncio.to_thread(self._read, await download.path())
            await download.delete()
        except (Error, OSError) as error:
            return DownloadedFile(name=name, error=_failed(str(error).partition("\n")[0]))

        if data is None:
            return DownloadedFile(name=name, error=self._too_large)
        return DownloadedFile(name=name, data=data)

    async def _end_of(self, download: Download) -> str | None:
        """Waits for the end of a download; returns why it failed. Cancels the newest ones while a file is too large."""
        ending = asyncio.ensure_future(download.failure())
        is_cancelled = False
        self._active.append(download)
        try:
            while not ending.done():
                await asyncio.wait([ending], timeout=_POLL_SECONDS)
                if not is_cancelled and self._active[-1] is download and self._largest_bytes() > self._max_bytes:
                    is_cancelled = True
                    await download.cancel()
        finally:
            self._active.remove(download)
            ending.cancel()

        failure = ending.result()
        if is_cancelled:
            return self._too_large
        return _failed(failure) if failure is not None else None

    def _read(self, path: Path) -> bytes | None:
        """None if the file is too large."""
        if path.stat().st_size > self._max_bytes:
            return None
        return path.read_bytes()

    def _largest_bytes(self) -> int:
        sizes = [0]
        for file in self.folder.iterdir():
            try:
                sizes.append(file.stat().st_size)
            except FileNotFoundError:
                continue  # it was renamed since
        return max(sizes)

    @property
    def _too_large(self) -> str:
        return f"the file is larger than {self._max_bytes} bytes"

    async def take(self, context: BrowserContext, *, timeout_seconds: float) -> list[DownloadedFile]:
        """Waits for the files of a session; returns them, and an error for each that has not arrived yet."""
        tasks = self._tasks.get(context)
        if not tasks:
            return []

        await asyncio.wait([task for _, task in tasks], timeout=timeout_seconds)

        files: list[DownloadedFile] = []
        for started in tuple(tasks):
            download, task = started
            if task.done():
                tasks.remove(started)
                files.append(task.result())
            else:
                note = "the download has not ended yet; wait, and look again"
                files.append(DownloadedFile(name=download.suggested_filename, error=note))

        return files

    def forget(self, context: BrowserContext) -> None:
        """Drops the files of a session that ends."""
        for _, task in self._tasks.pop(context, []):
            task.cancel()

    async def close(self) -> None:
        for context in tuple(self._tasks):
            self.forget(context)
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)


def _failed(reason: str) -> str:
    return f"the download failed: {reason}"
