from __future__ import annotations

from tests.tools.google_api.conftest import google as google
from tests.tools.google_api.conftest import provider as provider
