"""Checks by OpenAI's moderation endpoint, or by servers that offer it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.errors import AgentConfigError, MissingExtra, ModelError
from greenroom.invocation.context import InvocationContext
from greenroom.plugins.guardrails.check import Action, GuardrailCheck, Where, pieces
from greenroom.redaction.findings import Finding

if TYPE_CHECKING:
    import openai

_MAX_PIECE_CHARACTERS = 20_000


class ModerationCheck(GuardrailCheck):
    """A text is a violation if the provider flags it. If the provider fails, the run fails.

    thresholds: by category, such as `{"violence": 0.4}`, in place of the provider's flags; other categories are
    ignored. base_url, api_key: as in the SDK, which otherwise reads OPENAI_BASE_URL and OPENAI_API_KEY. Raises
    AgentConfigError.
    """

    judges_whole: ClassVar[bool] = True

    def __init__(
        self,
        name: str = "moderation",
        *,
        model: str = "omni-moderation-latest",
        thresholds: Mapping[str, float] | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 20.0,
        where: Iterable[Where] | None = None,
        on_violation: Action | None = None,
    ) -> None:
        super().__init__(name, where=where, on_violation=on_violation)
        if thresholds is not None and (not thresholds or not all(0 < one <= 1 for one in thresholds.values())):
            raise AgentConfigError("ModerationCheck: thresholds are above 0, up to 1, for one category or more")

        self._model = model
        self._thresholds = thresholds
        self._base_url = base_url
        self._api_key = api_key
        self._timeout_seconds = timeout_seconds
        self._client: openai.AsyncOpenAI | None = None

    async def find(self, text: str, *, where: Where, ctx: InvocationContext, start: int = 0) -> Sequence[Finding]:
        try:
            import openai
        except ImportError as error:
            raise MissingExtra("openai", "openai") from error

        labels: dict[str, None] = {}
        try:
            if self._client is None:
                key = self._api_key or ("none" if self._base_url else None)
                self._client = openai.AsyncOpenAI(api_key=key, base_url=self._base_url, timeout=self._timeout_seconds)
            for piece in pieces(text, _MAX_PIECE_CHARACTERS):
                answer = await self._client.moderations.create(model=self._model, input=piece)
                for result in answer.results:
                    labels.update(dict.fromkeys(self._violations(result)))
        except openai.OpenAIError as error:
            raise ModelError(f"{self._model}: {error}", model=self._model) from error

        return [Finding(0, len(text), f"{self.name}: {', '.join(labels)}")] if labels else ()

    def _violations(self, result: Any) -> list[str]:
        """The categories of a result, by which the text is a violation."""
        scores: dict[str, float] = result.category_scores.model_dump(by_alias=True)
        if self._thresholds is not None:
            return [name for name, least in self._thresholds.items() if (scores.get(name) or 0.0) >= least]

        flags: dict[str, bool | None] = result.categories.model_dump(by_alias=True)
        flagged = [name for name, is_flagged in flags.items() if is_flagged]
        return flagged or (["flagged"] if result.flagged else [])

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None
