"""Contract of session stores.

Star-import these tests into a test file that has a fixture `session_service`: a new, empty store
for each test. Needs pytest with pytest-asyncio in auto mode.
"""

from greenroom.testing.contracts.session_service.appending import *  # noqa: F403
from greenroom.testing.contracts.session_service.creating import *  # noqa: F403
from greenroom.testing.contracts.session_service.finding import *  # noqa: F403
from greenroom.testing.contracts.session_service.forking import *  # noqa: F403
from greenroom.testing.contracts.session_service.reading import *  # noqa: F403
