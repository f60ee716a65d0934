"""Contract of models.

Star-import these tests into a test file that has a fixture `provider`: a `ModelProvider`, new for
each test. Needs pytest with pytest-asyncio in auto mode.
"""

from greenroom.testing.contracts.model.exchanges import *  # noqa: F403
from greenroom.testing.contracts.model.failures import *  # noqa: F403
from greenroom.testing.contracts.model.provider import Misbehavior as Misbehavior
from greenroom.testing.contracts.model.provider import ModelProvider as ModelProvider
