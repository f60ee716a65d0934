"""Layout of an artifact in a store: the keys of its versions, and each version's description and payload."""

from __future__ import annotations

import re
import time
import unicodedata
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

import msgspec

from greenroom.artifacts.service import USER_NAMESPACE
from greenroom.errors import InvalidRequest, TooLarge
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record, empty_map
from greenroom.records.content import Blob, Part
from greenroom.records.listings import ArtifactVersion

MAX_NAME_BYTES = 1024
USER_FOLDER = "user"
"""Takes the position of a session id in a key, so it is no valid session id."""

_MAX_SEGMENT_BYTES = 200
"""File systems allow 255 for a name."""

_UNSAFE = re.compile(r'[\x00-\x1f\x7f-\x9f\u2028\u2029%/\\#?*<>|"]')
_UNSAFE_OR_NOT_ASCII = re.compile(r'[^ -~]|[%/\\#?*<>|"]')
_WHOLE_ESCAPES = re.compile(rf"(?:%..|[^%]){{1,{_MAX_SEGMENT_BYTES // 3}}}")
_VERSION = re.compile(r"0|[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"[0-9]+")
_URI_SAFE = "!$&'()*+,;=:@"


class Scope(NamedTuple):
    """The scope of artifacts: a session, or, with session_id None, all sessions of the user."""

    app_name: str
    user_id: str
    session_id: str | None


class ArtifactPath(NamedTuple):
    scope: Scope
    filename: str


def scopes_of(app_name: str, user_id: str, session_id: str) -> tuple[Scope, Scope]:
    """The session's scope and the user's. Raises InvalidRequest for ids that can't be part of a key."""
    for field, value in (("app_name", app_name), ("user_id", user_id), ("session_id", session_id)):
        _check_text(field, value)
        if value in ("", ".", ".."):
            raise _invalid(field, f"{field} can't be {value!r}")
    if session_id == USER_FOLDER:
        raise _invalid("session_id", f"A session called {USER_FOLDER!r} can't have artifacts")
    return Scope(app_name, user_id, session_id), Scope(app_name, user_id, None)


def artifact_path(app_name: str, user_id: str, session_id: str, filename: str) -> ArtifactPath:
    """The artifact's scope and name. Raises InvalidRequest for names and ids that would leave their scope."""
    session_scope, user_scope = scopes_of(app_name, user_id, session_id)
    _check_text("filename", filename)
    for part in filename.removeprefix(USER_NAMESPACE).split("/"):
        if part in ("", ".", ".."):
            raise _invalid("filename", f"An artifact's name can't have {part!r} between slashes: {filename!r}")
    return ArtifactPath(user_scope if filename.startswith(USER_NAMESPACE) else session_scope, filename)


def _check_text(field: str, value: str) -> None:
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise _invalid(field, f"{field} is not valid Unicode") from None
    if size > MAX_NAME_BYTES:
        raise _invalid(field, f"{field} is longer than {MAX_NAME_BYTES} bytes")
    if "\0" in value:
        raise _invalid(field, f"{field} can't hold a NUL character")


def _invalid(field: str, detail: str) -> InvalidRequest:
    return InvalidRequest(detail, location=("path", field))


def scope_key(scope: Scope) -> str:
    """`{app}/{user}/{session}`, or `{app}/{user}/user`."""
    session = USER_FOLDER if scope.session_id is None else scope.session_id
    return "/".join(encode_segment(segment) for segment in (scope.app_name, scope.user_id, session))


def user_key(app_name: str, user_id: str) -> str:
    """`{app}/{user}`, below which all of a user's artifacts are. Raises InvalidRequest."""
    scope = scopes_of(app_name, user_id, "any")[1]
    return scope_key(scope).rpartition("/")[0]


def artifact_key(path: ArtifactPath) -> str:
    """`{scope}/{name}`; the slashes of the name stay. Versions are below it, as `{key}/{version}`.

    A part of a name that looks like a version is escaped: `report/1` is not version 1 of `report`.
    """
    parts = (encode_segment(part, reserved=_NUMBER) for part in path.filename.split("/"))
    return "/".join((scope_key(path.scope), *parts))


def parse_version_key(scope: Scope, key: str) -> ArtifactPath | None:
    """The artifact that a version's key belongs to; None for a key that this layout didn't write."""
    prefix = scope_key(scope) + "/"
    folder, _, last = key.rpartition("/")
    if not folder.startswith(prefix) or version_in(last) is None:
        return None
    path = ArtifactPath(scope, unquote(folder.removeprefix(prefix).replace("%/", "")))
    return path if artifact_key(path) == folder else None


def version_in(key: str) -> int | None:
    """The version in a key's last segment; None when it isn't a number."""
    last = key.rpartition("/")[2]
    return int(last) if _VERSION.fullmatch(last) else None


def uri_path(path: ArtifactPath) -> str:
    """The path in ADK's URIs: `apps/…/users/…/sessions/…/artifacts/…`."""
    app_name, user_id, session_id = path.scope
    session = "" if session_id is None else f"/sessions/{_quote(session_id)}"
    filename = quote(path.filename, safe=_URI_SAFE + "/")
    return f"apps/{_quote(app_name)}/users/{_quote(user_id)}{session}/artifacts/{filename}"


def _quote(text: str) -> str:
    return quote(text, safe=_URI_SAFE)


def encode_segment(text: str, *, reserved: re.Pattern[str] | None = None) -> str:
    """Encodes a text as one segment of a key, readable where possible; no two texts give the same segment.

    Characters that could lead out of the segment are percent-encoded. Text that isn't NFC loses all its non-ASCII
    letters, because some file systems normalise names. A segment too long for a file system becomes several, all but
    the last ending in a lone `%`. reserved: segments that mean something else in the layout; they are encoded, too.
    """
    readable = unicodedata.is_normalized("NFC", text)
    encoded = (_UNSAFE if readable else _UNSAFE_OR_NOT_ASCII).sub(_percent, text)
    segment = _tame(encoded, reserved)
    if len(segment.encode()) <= _MAX_SEGMENT_BYTES:
        return segment
    encoded = _UNSAFE_OR_NOT_ASCII.sub(_percent, text)
    pieces = _WHOLE_ESCAPES.findall(encoded)
    return "%/".join((*pieces[:-1], _tame(pieces[-1], reserved)))


def _tame(piece: str, reserved: re.Pattern[str] | None) -> str:
    """Escapes `.` and `..`, trailing characters that Windows drops, and reserved words."""
    if piece.endswith((".", " ")):
        return piece[:-1] + f"%{ord(piece[-1]):02X}"
    if reserved is not None and reserved.fullmatch(piece):
        return f"%{ord(piece[0]):02X}{piece[1:]}"
    return piece


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


PayloadField: TypeAlias = Literal["inlineData", "text", "fileData"]


class Description(Record, kw_only=True):
    """A version without its payload."""

    part: Part
    payload: PayloadField
    """The field of the part that is stored apart from it."""

    payload_bytes: int | None = None
    """None where only the store knows."""

    create_time: float
    """Unix seconds."""

    custom_metadata: JsonObject = msgspec.field(default_factory=empty_map)

    @property
    def mime_type(self) -> str | None:
        if self.part.inline_data is not None:
            return self.part.inline_data.mime_type
        if self.part.file_data is not None and self.payload == "fileData":
            return self.part.file_data.mime_type
        return "text/plain"

    def as_version(self, version: int, canonical_uri: str) -> ArtifactVersion:
        return ArtifactVersion(
            version=version,
            canonical_uri=canonical_uri,
            custom_metadata=self.custom_metadata,
            create_time=self.create_time,
            mime_type=self.mime_type,
        )


read_description = wire.decoder(Description)
"""Raises msgspec.DecodeError for other bytes than those of `encode_description`."""


def describe_upload(mime_type: str, custom_metadata: JsonObject | None) -> Description:
    """The description of binary data whose size isn't known yet."""
    part = Part(inline_data=Blob(mime_type=mime_type))
    return Description(part=part, payload="inlineData", create_time=time.time(), custom_metadata=custom_metadata or {})


def take_apart(part: Part, custom_metadata: JsonObject | None, *, limit_bytes: int | None) -> tuple[Description, bytes]:
    """The description and the payload.

    Raises InvalidRequest for parts that aren't kept, and TooLarge for a payload over the limit.
    """
    blob = part.inline_data
    reference = part.file_data

    kind: PayloadField
    try:
        if blob is not None and blob.data is not None:
            bare = msgspec.structs.replace(part, inline_data=msgspec.structs.replace(blob, data=None))
            kind = "inlineData"
            payload = blob.data
        elif blob is None and part.text is not None:
            bare = msgspec.structs.replace(part, text=None)
            kind = "text"
            payload = part.text.encode()
        elif blob is None and reference is not None and reference.file_uri:
            bare = part
            kind = "fileData"
            payload = b""
        else:
            raise InvalidRequest("Not supported artifact type.", location=("body", "artifact"))
    except UnicodeEncodeError:
        raise InvalidRequest("The artifact's text is not valid Unicode", location=("body", "artifact")) from None

    if limit_bytes is not None and len(payload) > limit_bytes:
        raise TooLarge("The artifact", limit_bytes=limit_bytes)

    description = Description(
        part=bare,
        payload=kind,
        payload_bytes=len(payload),
        create_time=time.time(),
        custom_metadata=custom_metadata or {},
    )
    return description, payload


def encode_description(description: Description) -> bytes:
    """Encodes the description as one line of JSON. Raises InvalidRequest for text that isn't valid Unicode."""
    try:
        return wire.encode(description)
    except UnicodeEncodeError:
        raise InvalidRequest("The artifact's text is not valid Unicode", location=("body", "artifact")) from None


def removed_part() -> Part:
    """Returns the part that a rewind saves as the newest version of an artifact that did not exist before. Source:
    ADK."""
    return Part(inline_data=Blob(data=b"", mime_type="application/octet-stream"))


def put_together(description: Description, payload: bytes) -> Part | None:
    """The part as it was saved; None when a rewind has removed it. Reuses and changes the description's own part."""
    part = description.part
    if description.payload == "text":
        part.text = payload.decode()
    elif description.payload == "inlineData" and part.inline_data is not None:
        part.inline_data.data = payload
        if not payload and part == removed_part():
            return None
    return part
