"""From a model's name to the model: patterns, each with a factory; the first that matches the whole name wins."""

from __future__ import annotations

import re
from collections.abc import Callable

from greenroom.errors import ModelNotFound
from greenroom.models.model import BaseLlm

ModelFactory = Callable[[str], BaseLlm]


def _local(name: str) -> BaseLlm:
    from greenroom.models.local import LocalLlm

    return LocalLlm(model=name)


def _openai(name: str) -> BaseLlm:
    from greenroom.models.openai import OpenAILlm

    return OpenAILlm(model=name)


class LLMRegistry:
    """Name patterns are regular expressions. A pattern registered later is asked before the earlier ones."""

    _factories: dict[str, ModelFactory] = {  # noqa: RUF012 - one registry for the process, as in ADK
        r"local/.+": _local,
        r"openai/.+": _openai,
        r"gpt-.*|o\d+(-.*)?": _openai,
    }
    _models: dict[str, BaseLlm] = {}  # noqa: RUF012

    @classmethod
    def register(cls, pattern: str, factory: ModelFactory) -> None:
        cls._factories = {pattern: factory, **{p: f for p, f in cls._factories.items() if p != pattern}}
        cls._models = {name: model for name, model in cls._models.items() if not re.fullmatch(pattern, name)}

    @classmethod
    def resolve(cls, name: str) -> BaseLlm:
        """The one model of this name in the process. Raises ModelNotFound, or MissingExtra for a provider's SDK."""
        model = cls._models.get(name)
        if model is None:
            for pattern, factory in cls._factories.items():
                if re.fullmatch(pattern, name):
                    model = cls._models[name] = factory(name)
                    break
            else:
                raise ModelNotFound(name, list(cls._factories))
        return model

    @classmethod
    async def close(cls) -> None:
        models, cls._models = cls._models, {}
        for model in models.values():
            await model.close()
