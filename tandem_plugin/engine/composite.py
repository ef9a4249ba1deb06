"""Two models in one: for each architecture and mode, a subclass of the senior's own class.

:mod:`~tandem_plugin.engine.senior` has what lockstep adds to the senior,
:mod:`~tandem_plugin.engine.speculative.senior` what the speculative mode adds, and this module what
both add.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from tandem_plugin.engine import hybrid, images
from tandem_plugin.engine import senior as lockstep
from tandem_plugin.engine.base_junior import check_may_load
from tandem_plugin.engine.patches.cpu_weights import (
    check_cpu_weights,
    pack_cpu_weights_anew,
    plain_convolutions,
)
from tandem_plugin.engine.speculative import senior as speculative
from tandem_plugin.engine.text_models import read_text_weights
from tandem_plugin.engine.wire import PREFIX, SPECULATIVE_PREFIX, without_prefix

Weight = tuple[str, Tensor]


def __getattr__(name: str) -> type[nn.Module]:
    """``composite.TandemQwen3ForCausalLM``: vLLM looks classes up by name."""
    if name.startswith(PREFIX):
        return composite_class(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def composite_class(name: str) -> type[nn.Module]:
    """The tandem subclass of one of vLLM's model classes, by the name of its architecture."""
    from vllm import ModelRegistry

    drafts = name.startswith(SPECULATIVE_PREFIX)
    architecture = without_prefix(name)
    senior_class = ModelRegistry.models[architecture].load_model_cls()
    read_text_weights(architecture)
    common = {
        "__module__": __name__,
        "__qualname__": name,
        "__doc__": f"{architecture} as the senior, with a frozen junior.",
        "get_model_state_cls": _get_model_state_cls,
        "load_weights": _load_weights,
        "_senior": senior_class,
        "_tandem_mode": speculative if drafts else lockstep,
    }
    members = speculative.members() if drafts else lockstep.members()
    inherited = hybrid.members(senior_class) | images.members(senior_class)
    return type(name, (senior_class,), common | inherited | members)


def _get_model_state_cls(self: Any) -> type[Any]:
    """Model Runner V2 calls this for its state class: the senior's own, extended by authors."""
    state = _senior_state(self)
    return type("Tandem" + state.__name__, (self._tandem_mode.state_class(), state), {})


def _senior_state(self: Any) -> type[Any]:
    """The model state class that vLLM would have chosen for the senior alone."""
    if hasattr(self._senior, "get_model_state_cls"):
        state: type[Any] = self._senior.get_model_state_cls(self)
        return state
    if hybrid.state_kinds(self):
        from vllm.v1.worker.gpu.model_states.mamba_hybrid import MambaHybridModelState as Kind
    else:
        from vllm.v1.worker.gpu.model_states.default import DefaultModelState as Kind
    kind: type[Any] = Kind
    return kind


def _load_weights(self: Any, weights: Iterable[Weight], *arguments: Any, **options: Any) -> Any:
    """Load the senior's weights, at startup and at every weight sync.

    Tokens sampled with the previous weights are measured first, if that is still pending. Raises
    :class:`EngineError` for a sync of whole weights that the junior shares.
    """
    check_may_load(self)
    self.tandem_measures.finish()
    check_cpu_weights(self)
    weights_of_senior = _by_first_name(self, weights)
    with plain_convolutions(self):
        loaded = self._senior.load_weights(self, weights_of_senior, *arguments, **options)
    pack_cpu_weights_anew(self, loaded)
    return loaded


def _by_first_name(self: nn.Module, weights: Iterable[Weight]) -> Iterator[Weight]:
    """The weights of one call; a tied weight sent only under its second name gets its first.

    vLLM (0.29) ignores ``lm_head.weight`` of a model whose head is its embedding, but raises unless
    the same call brings the embedding. verl sends both, in buckets, which are separate calls.
    """
    first: dict[int, str] = {}
    names = [
        (name, first.setdefault(id(parameter), name))
        for name, parameter in self.named_parameters(remove_duplicate=False)
    ]
    tied = {name: original for name, original in names if name != original}
    brought: set[str] = set()
    seconds: list[tuple[str, str, Tensor]] = []
    for name, weight in weights:
        parameter = _parameter_name(self, name)
        if parameter in tied:
            seconds.append((name, tied[parameter], weight))
        else:
            brought.add(parameter)
            yield name, weight
    for name, original, weight in seconds:
        yield (name if original in brought else original), weight


def _parameter_name(self: nn.Module, name: str) -> str:
    """A weight's name in vLLM's class, which may differ from the checkpoint's.

    Source: ``hf_to_vllm_mapper``, by which a class's own ``load_weights`` maps names, and leaves
    those that are mapped already as they are.
    """
    mapper = getattr(self, "hf_to_vllm_mapper", None)
    mapped: list[str] = [name] if mapper is None else mapper.apply_list([name])
    return mapped[0] if mapped else name
