"""URIs of stores and services: how they are shown, hosts of this machine, and schemes that installed packages add."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal

from greenroom.errors import InvalidRequest

_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/\s]*@")
_SECRET_OPTION = re.compile(r"([?&][^=&\s]*(?:password|passwd|secret|token|key)[^=&\s]*=)[^&\s'\"]+", re.IGNORECASE)


def without_password(text: str) -> str:
    """The text with asterisks in place of the passwords of URIs, and of options such as `?password=`."""
    return _SECRET_OPTION.sub(r"\1********", _PASSWORD.sub(r"\1:********@", text))


def is_postgres(uri: str) -> bool:
    """True for a database of PostgreSQL: `postgresql://…`, also with SQLAlchemy's driver (`postgresql+asyncpg://`)."""
    kind = uri.partition(":")[0].partition("+")[0]
    return kind in ("postgresql", "postgres")


def is_loopback(host: str) -> bool:
    """True for names and addresses of this machine. host: without a port; an IPv6 address may have brackets."""
    name = host.lower().strip("[]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def contributed_service(uri: str, kind: Literal["session", "artifact", "memory"], *, known: str) -> Any:
    """The store that an installed package offers for the URI's scheme.

    A package names each scheme by an entry point of the group `greenroom.session_services`,
    `greenroom.artifact_services` or `greenroom.memory_services`: a function that takes the URI and
    returns the service. known: greenroom's own schemes, for the error. Raises InvalidRequest.
    """
    from importlib.metadata import entry_points  # takes a while, and most servers need none

    scheme, separator, _ = uri.partition("://")
    points = sorted(entry_points(group=f"greenroom.{kind}_services"), key=lambda point: point.name)
    for point in points:
        if separator and point.name == scheme.lower():
            return point.load()(uri)
    schemes = ", ".join([known, *(f"{point.name}://" for point in points)])
    raise InvalidRequest(f"Unknown {kind} store: {without_password(uri)!r}. Known: {schemes}", location=("uri",))
