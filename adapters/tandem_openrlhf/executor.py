"""What stands before an engine's agent executor: every trajectory goes through it."""

from __future__ import annotations

import copy
from typing import Any

from tandem_openrlhf.sample_keys import taken_key, without_key
from tandem_openrlhf.trajectory import narrowed, start_trajectory
from tandem_plugin.boundaries import Vocabulary
from tandem_plugin.config import TandemConfig
from tandem_plugin.rules import TandemRules

__all__ = ["TandemExecutor"]


class TandemExecutor:
    """Sends a trajectory's calls out with tandem requests; brings its response back narrowed.

    executor: OpenRLHF's own or the user's. Whatever an agent does, it does with the engine that it
    is given here and says in what it returns. Everything but ``execute`` is the executor's own.
    """

    def __init__(self, executor: Any, config: TandemConfig) -> None:
        self._executor = executor
        self._config = config
        self._rules: TandemRules | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    async def execute(
        self, *, sampling_params: Any, hf_tokenizer: Any, llm_engine: Any, **call: Any
    ) -> dict[str, Any]:
        """One response to a prompt, as OpenRLHF asks for it.

        Raises :class:`EngineError` where the engine does not run in tandem, or the prompt came from
        a process that does not; :class:`AuthorshipError` for a response that its calls do not
        explain.
        """
        rules = self._engines_rules(llm_engine, hf_tokenizer)
        key = taken_key(sampling_params)
        trajectory = start_trajectory(llm_engine, self._config, rules, key)
        own = copy.deepcopy(sampling_params)  # one object serves all samples of a prompt
        own.extra_args = without_key(own.extra_args) or None
        response = await self._executor.execute(
            sampling_params=own, hf_tokenizer=hf_tokenizer, llm_engine=trajectory, **call
        )
        return narrowed(response, trajectory)

    def _engines_rules(self, engine: Any, tokenizer: Any) -> TandemRules:
        if self._rules is None:
            from tandem_plugin.engine.status import check_engine

            check_engine(engine.llm.vllm_config)
            self._rules = TandemRules(self._config, Vocabulary.from_tokenizer(tokenizer))
        return self._rules
