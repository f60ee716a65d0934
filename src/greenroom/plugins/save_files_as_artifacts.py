"""Saves the files in a user's message as artifacts, and replaces them by their names."""

from __future__ import annotations

import logging
from typing import Any

from greenroom.artifacts.service import BaseArtifactService
from greenroom.invocation.context import InvocationContext, RunningAgent
from greenroom.invocation.user_context import CallbackContext
from greenroom.plugins.plugin import PerRunPlugin
from greenroom.records.content import Blob, Content, FileData, Part

_log = logging.getLogger("greenroom.plugins")

MAX_FILE_BYTES = 20 * 1024 * 1024

_READABLE_BY_MODELS = ("gs://", "http://", "https://")


class SaveFilesAsArtifactsPlugin(PerRunPlugin[dict[str, int]]):
    """Saves each inline file as an artifact, named by its display name, else `artifact_{invocation
    id}_{index}`.

    The file is replaced by a text with the artifact's name, and, if the store has a `gs:` or
    `http(s):` URI for it, by a reference (attach_file_reference). A file over 20 MiB is replaced by
    an error text. A file that can't be saved stays in the message. The first event of the answering
    agent has the versions in its artifact delta.
    """

    def __init__(
        self,
        name: str = "save_files_as_artifacts_plugin",
        *,
        attach_file_reference: bool = True,
    ) -> None:
        super().__init__(name)
        self._attaches_reference = attach_file_reference

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: Content
    ) -> Content | None:
        parts = user_message.parts or []
        if not any(_file_of(part) for part in parts):
            return None

        artifacts = invocation_context.artifact_service
        if artifacts is None:
            _log.warning("plugin %s has no artifact service to save files in", self.name)
            return None

        new_parts: list[Part] = []
        for index, part in enumerate(parts):
            file = _file_of(part)
            if file is None:
                new_parts.append(part)
            else:
                name = file.display_name or f"artifact_{invocation_context.invocation_id}_{index}"
                new_parts += await self._replacement(invocation_context, artifacts, part, file, name)

        return Content(role=user_message.role, parts=new_parts)

    async def before_agent_callback(
        self,
        *,
        agent: RunningAgent,
        callback_context: CallbackContext,
    ) -> None:
        callback_context.actions.artifact_delta.update(self._runs.pop(callback_context.invocation_id, {}))

    async def _replacement(
        self, ctx: InvocationContext, artifacts: BaseArtifactService, part: Part, file: Blob, name: str
    ) -> list[Part]:
        size = len(file.data or b"")
        if size > MAX_FILE_BYTES:
            megabytes = size / 1024 / 1024
            return [Part(text=f'[Error: the file "{name}" has {megabytes:.1f} MiB; at most 20 MiB can be uploaded]')]

        key: dict[str, Any] = {**ctx.session.key._asdict(), "filename": name}
        try:
            version = await artifacts.save_artifact(**key, artifact=part)
        except Exception:  # a store may raise anything; the model can still read the file in the message
            _log.exception("plugin %s could not save the file %s", self.name, name)
            return [part]

        self._runs.setdefault(ctx.invocation_id, {})[name] = version

        replaced = [Part(text=f'[Uploaded file, saved as the artifact "{name}"]')]
        if self._attaches_reference:
            try:
                saved = await artifacts.get_artifact_version(**key, version=version)
            except Exception:  # the file is saved, and the text with its name is enough
                _log.exception("plugin %s could not ask for the address of %s", self.name, name)
                return replaced

            if saved is not None and saved.canonical_uri.startswith(_READABLE_BY_MODELS):
                mime_type = file.mime_type or saved.mime_type
                reference = FileData(
                    file_uri=saved.canonical_uri,
                    mime_type=mime_type,
                    display_name=name,
                )
                replaced.append(Part(file_data=reference))

        return replaced


def _file_of(part: Part) -> Blob | None:
    if part.inline_data is not None and part.inline_data.data is not None:
        return part.inline_data
    return None
