"""Models through an Apigee gateway."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

import msgspec

from greenroom.errors import AgentConfigError
from greenroom.models.attempts import RetryPolicy
from greenroom.models.by_name import wants_vertex
from greenroom.models.gemini.llm import KEY_VARIABLES, Gemini
from greenroom.models.model_errors import missing_variable
from greenroom.models.openai.chat import OpenAILlm
from greenroom.models.provider import ProviderLlm
from greenroom.models.retrying import WrapperLlm
from greenroom.records.model_exchange import LlmRequest, LlmResponse


class ApigeeLlm(WrapperLlm):
    """Calls a model through an Apigee proxy.

    model: `apigee/[provider/][version/]name`; provider: `vertex_ai`, `gemini`, `openai`; version:
    `v…`.

    proxy_url: else APIGEE_PROXY_URL.
    custom_headers: sent with each request.
    api_type: `chat_completions` or `genai` where the provider doesn't say it. credentials (of
        `google.auth`), retry_options, client: as in `Gemini`.
    """

    def __init__(
        self,
        model: str,
        *,
        proxy_url: str | None = None,
        custom_headers: Mapping[str, str] | None = None,
        retry_options: Any = None,
        api_type: Literal["unknown", "chat_completions", "genai"] = "unknown",
        credentials: Any = None,
        client: Any = None,
    ) -> None:
        *path, name = model.removeprefix("apigee/").split("/")
        if path and path[0] in ("vertex_ai", "gemini", "openai"):
            provider = path.pop(0)
        else:
            provider = ""

        version = path.pop(0) if path and path[0].startswith("v") else None
        url = proxy_url or os.environ.get("APIGEE_PROXY_URL")

        if path or not name:
            raise AgentConfigError(f"The model {model!r} is not of the form apigee/[provider/][version/]name")
        if not url and client is None:
            raise missing_variable("APIGEE_PROXY_URL", model=model)

        if provider == "openai" or (not provider and api_type == "chat_completions"):
            base_url = f"{url}".rstrip("/") + (f"/{version}" if version else "")
            model_behind: ProviderLlm = OpenAILlm(
                name,
                base_url=base_url,
                headers=custom_headers,
                client=client,
            )
            if retry_options is not None:
                model_behind.retry_policy = RetryPolicy.of(retry_options)
        else:
            is_vertex = provider == "vertex_ai" or (not provider and wants_vertex())
            has_key = is_vertex or any(os.environ.get(variable) for variable in KEY_VARIABLES)
            model_behind = Gemini(
                name,
                vertexai=is_vertex,
                api_key=None if has_key else "none",  # the gateway has its own
                credentials=credentials,
                base_url=url,
                api_version=version,
                headers=custom_headers,
                retry_options=retry_options,
                client=client,
            )

        super().__init__(model_behind)
        self.model = model

    def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncIterator[LlmResponse]:
        request = msgspec.structs.replace(llm_request, model=self.wrapped.model)
        return self.wrapped.generate_content_async(request, stream)
