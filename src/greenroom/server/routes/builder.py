"""Handlers of the editors of agents: ADK's builder, and that of the dev UI."""

from __future__ import annotations

import asyncio

from greenroom.errors import InvalidRequest, NotOffered
from greenroom.records.base import Record
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_body import read_body
from greenroom.server.request_context import RequestContext

MAX_UPLOAD_BYTES = 2_000_000
_ROOT_FILE = "root_agent.yaml"


class AgentFileList(Record, kw_only=True, omit_defaults=False):
    """The files of an app that can be edited."""

    names: list[str]
    """The YAML files of the app, relative to its folder."""


async def get_schema(context: RequestContext) -> AnyReply:
    _check_may_edit(context)
    from greenroom.apps.yaml_config.schema import config_schema

    return Reply(value=config_schema())


async def list_files(context: RequestContext) -> AnyReply:
    _check_may_edit(context)
    files = context.apps.files(context.path["app_name"])
    return Reply(value=AgentFileList(names=await asyncio.to_thread(files.names)))


async def get_file(context: RequestContext) -> AnyReply:
    """Empty where there is no such file, or agents can't be edited: ADK's page then switches off its editor."""
    data = None
    if context.settings.edit:
        _check_may_edit(context)
        files = context.apps.files(context.path["app_name"])
        name = context.query["file_path"] or _ROOT_FILE
        data = await asyncio.to_thread(files.read, name, draft=context.query["tmp"])
    if data is None:
        return Reply(data=b"", media_type="text/plain; charset=utf-8")
    return Reply(data=data, media_type="application/x-yaml")


async def save_files(context: RequestContext) -> AnyReply:
    _check_may_edit(context)
    data = await read_body(context.receive, context.headers, limit_bytes=MAX_UPLOAD_BYTES)
    app_name, uploads = _uploads(context.headers.get("content-type", ""), data, context.path.get("app_name"))
    files = context.apps.files(app_name)
    await asyncio.to_thread(files.save_drafts if context.query["tmp"] else files.publish, uploads)
    return Reply(value=True)


async def cancel(context: RequestContext) -> AnyReply:
    """Drops the draft. Without an editor there is none."""
    if context.settings.edit:
        _check_may_edit(context)
        await asyncio.to_thread(context.apps.files(context.path["app_name"]).drop_drafts)
    return Reply(value=True)


def _check_may_edit(context: RequestContext) -> None:
    if not context.settings.edit:
        raise NotOffered("Agents can't be edited through this server: start it with --edit")
    context.identity.check("manage")


def _uploads(content_type: str, data: bytes, app_name: str | None) -> tuple[str, dict[str, bytes]]:
    """The app, which the older path doesn't name, and the files of a form. Their names begin with the app's."""
    from email.parser import BytesParser  # takes 4 ms
    from email.policy import HTTP

    header = b"content-type: %b\r\n\r\n" % content_type.encode("latin-1", "replace").replace(b"\n", b" ")
    form = BytesParser(policy=HTTP).parsebytes(header + data)
    files: dict[str, bytes] = {}
    for part in form.iter_parts() if form.is_multipart() else ():
        name = (part.get_filename() or "").lstrip("/")
        content = part.get_payload(decode=True)
        if not name or not isinstance(content, bytes):
            continue
        if app_name is None:
            app_name = name.partition("/")[0]
        files[name.removeprefix(f"{app_name}/")] = content
    if app_name is None or not files:
        raise InvalidRequest("The body has no files: send a form with `files`", location=("body", "files"))
    return app_name, files
