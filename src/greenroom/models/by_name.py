"""Resolves model names to models."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable

from greenroom.errors import MissingExtra, ModelError, ModelNotFound
from greenroom.models.model import BaseLlm

ModelFactory = Callable[[str], BaseLlm]


def _local(name: str) -> BaseLlm:
    from greenroom.models.local import LocalLlm

    return LocalLlm(model=name)


def _local_fault(name: str) -> str | None:
    from greenroom.models.local_files import find_model_file

    try:
        find_model_file(name)
    except ModelError as error:
        return error.detail
    return _package_fault("local", "xllamacpp")


def _openai(name: str) -> BaseLlm:
    from greenroom.models.openai import OpenAILlm

    return OpenAILlm(model=name)


def _openai_fault(name: str) -> str | None:
    if os.environ.get("OPENAI_API_KEY"):
        return _package_fault("openai", "openai")
    return f"The model {name!r} needs the environment variable OPENAI_API_KEY"


def _package_fault(extra: str, package: str) -> str | None:
    return None if importlib.util.find_spec(package) else MissingExtra(extra, package).detail


_CHECKS: dict[ModelFactory, Callable[[str], str | None]] = {_local: _local_fault, _openai: _openai_fault}


class LLMRegistry:
    """Name patterns are regular expressions. A pattern registered later is tried before the earlier ones."""

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
            model = cls._models[name] = cls._factory(name)(name)
        return model

    @classmethod
    def fault(cls, name: str) -> str | None:
        """What a model of this name lacks on this machine and how to get it: a package, a key, its file; else None.

        Cheap: imports no SDK, reads no model file, sends nothing. Factories registered by others are assumed to work.
        """
        try:
            check = _CHECKS.get(cls._factory(name))
        except ModelNotFound as error:
            return error.detail
        return check(name) if check is not None else None

    @classmethod
    async def close(cls) -> None:
        models, cls._models = cls._models, {}
        for model in models.values():
            await model.close()

    @classmethod
    def _factory(cls, name: str) -> ModelFactory:
        for pattern, factory in cls._factories.items():
            if re.fullmatch(pattern, name):
                return factory
        raise ModelNotFound(name, list(cls._factories))
