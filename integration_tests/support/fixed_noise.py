"""Test hook: every request samples with the same seed, so that equal runs bring equal tokens."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from tandem_plugin.patching.after_import import after_import


def _fix(module: ModuleType) -> None:
    generate = module.LLMServerClient.generate

    @functools.wraps(generate)
    async def seeded(
        client: Any, request_id: Any, *, sampling_params: dict[str, Any], **more: Any
    ) -> Any:
        seeded_params = {**sampling_params, "seed": 3}
        return await generate(client, request_id, sampling_params=seeded_params, **more)

    module.LLMServerClient.generate = seeded


after_import("verl.workers.rollout.llm_server", _fix)
