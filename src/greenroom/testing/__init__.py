"""A scripted model, the contract suites of the stores, and evaluations as tests."""

from greenroom.testing.evaluation import evaluate as evaluate
from greenroom.testing.scripted_live_model import INTERRUPTED as INTERRUPTED
from greenroom.testing.scripted_live_model import Drops as Drops
from greenroom.testing.scripted_live_model import HangsUp as HangsUp
from greenroom.testing.scripted_live_model import Hears as Hears
from greenroom.testing.scripted_live_model import Listens as Listens
from greenroom.testing.scripted_live_model import Says as Says
from greenroom.testing.scripted_live_model import ScriptedLiveModel as ScriptedLiveModel
from greenroom.testing.scripted_model import Fails as Fails
from greenroom.testing.scripted_model import ScriptedModel as ScriptedModel
