"""A scripted model, and the contract suites of the stores."""

from greenroom.testing.scripted_model import Fails as Fails
from greenroom.testing.scripted_model import ScriptedModel as ScriptedModel
