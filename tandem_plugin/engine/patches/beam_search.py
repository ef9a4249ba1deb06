"""Beam search, which tandem refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tandem_plugin.engine.names import asks_for_tandem
from tandem_plugin.patching.wrapping import wrap_once

__all__ = ["wrap_beam_search", "wrap_offline_beam_search"]


def wrap_beam_search() -> None:
    """Refuse the beam search that a request to a tandem engine's server asks for.

    Touches: ``BeamSearchOnlineMixin.beam_search`` (``use_beam_search`` over HTTP and in batch
    files). Versions: 0.24 to 0.32. Why: it makes requests of one token of its own, without what the
    user's says about tandem, so that the senior alone would answer. Goes when: it passes
    ``extra_args`` on, which the door then refuses.
    """
    from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin

    wrap_once(BeamSearchOnlineMixin, "beam_search", _refuse_beams)


def wrap_offline_beam_search() -> None:
    """Refuse ``LLM.beam_search`` of a tandem engine.

    Touches: ``BeamSearchOfflineMixin.beam_search``. Versions, why, goes when: as
    :func:`wrap_beam_search`, which every process can afford to import and this one's module not.
    """
    from vllm.entrypoints.generate.beam_search.offline import BeamSearchOfflineMixin

    wrap_once(BeamSearchOfflineMixin, "beam_search", _refuse_beams)


def _refuse_beams(search: Callable[..., Any], owner: Any, *rest: Any, **options: Any) -> Any:
    engine = getattr(owner, "engine_client", None) or owner.llm_engine
    if asks_for_tandem(engine.vllm_config.additional_config):
        from tandem_plugin.engine.admission import refuse_beam_search

        refuse_beam_search()
    return search(owner, *rest, **options)
