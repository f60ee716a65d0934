"""The HTTP server."""

from greenroom.server.application import create_app as create_app
from greenroom.server.settings import CorsSettings as CorsSettings
from greenroom.server.settings import ServerSettings as ServerSettings
