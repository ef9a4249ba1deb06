"""``vllm_mode="server"``: TRL's client of a plain ``vllm serve`` that runs in tandem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tandem_plugin.config import TandemConfig
from tandem_plugin.patching.wrapping import Delegate, replaced
from tandem_plugin.rules import TandemRules
from tandem_plugin.training.server import VLLMServer

_CONCURRENT = 64
"""Requests at a time: as many as TRL's client sends where it sends one for each prompt."""


class TandemClient(Delegate):
    """Wraps TRL's ``VLLMClient``: each prompt is a separate request with its own tandem seed.

    TRL sends one body for all prompts, and vLLM's fields for extensions belong to a body.
    """

    def generate(
        self,
        prompts: Sequence[Any],
        generation_kwargs: Mapping[str, Any] | None = None,
        **sampling: Any,
    ) -> dict[str, list[Any] | None]:
        """As ``VLLMClient.generate``, with the request of each prompt, if it has one."""

        def send(prompt: Any) -> dict[str, list[Any]]:
            body = dict(generation_kwargs or {})
            request = getattr(prompt, "request", None)
            if request is not None:  # otherwise a call from elsewhere, which is not in tandem
                body["vllm_xargs"] = {**body.get("vllm_xargs", {}), **VLLMServer.xargs(request)}
            answer: dict[str, list[Any]] = self._target.generate(
                prompts=[list(prompt)], generation_kwargs=body, **sampling
            )
            return answer

        with ThreadPoolExecutor(min(_CONCURRENT, len(prompts))) as pool:
            answers = list(pool.map(send, prompts))
        return {
            name: None
            if answers[0][name] is None
            else [value for answer in answers for value in answer[name]]
            for name in answers[0]
        }

    def collective_rpc(self, method: str) -> list[Any]:
        """As ``vllm.LLM.collective_rpc``, by the server's development mode, which TRL requires."""
        return VLLMServer(self._target.base_url).collective_rpc(method)


def start_client(
    initialise: Callable[[], None], generation: Any, config: TandemConfig
) -> TandemClient | None:
    """Let TRL create its client of a server, which must prove that it is in tandem as configured.

    generation: TRL's ``VLLMGeneration``. Returns None in processes without a client. Raises like
    :meth:`VLLMServer.check`, before the first weight is sent.
    """
    from trl.generation import vllm_generation

    clients: list[TandemClient] = []

    def in_tandem(client: Callable[..., Any], **options: Any) -> TandemClient:
        plain = client(**options)
        rules = TandemRules.from_tokenizer(config, generation.processing_class)
        start = str(generation.model.name_or_path)
        VLLMServer(plain.base_url).check(plain.model, start, rules)
        clients.append(TandemClient(plain))
        return clients[0]

    with replaced(vllm_generation, "VLLMClient", in_tandem):
        initialise()
    return clients[0] if clients else None
