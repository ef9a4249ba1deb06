"""Two models in one vLLM engine: its parts, in the order in which they act.

No part knows the lab or a trainer. The front end and the workers are processes of their own: a
request's parameters and a worker's answers cross between them under the names of ``wire``.

Startup:

- ``plugin``: vLLM's entry point; applies ``patches`` and routes engine arguments to ``configure``
- ``configure``: from engine arguments to a checked configuration, by the next five
- ``unsupported``: rejects what would generate wrong tokens
- ``local_models``: rejects the same in a trainer's driver, without vLLM
- ``tokenizer_check``: the rules of the engine's tokenizer, which the junior must share
- ``compilation``: vLLM's compiler settings for two models
- ``runners``: binds Model Runner V1 or V2, each a folder
- ``composite``: the model's class, the senior's own with the members of ``senior``
- ``hybrid``: what it tells vLLM of both models' recurrent states
- ``images``: both models' sight of prompts with images
- ``text_models``: unified checkpoints, of which only the text model is built and loaded
- ``junior``: builds the frozen junior; ``base_junior``: takes an adapted senior's base instead
- ``layer_tensors``: the tensors of the junior that a sleep must keep
- ``patches``: every patch of vLLM's internals, by area

A request:

- ``llm``: ``TandemLLM``, vLLM's ``LLM`` with ``tandem`` in every call
- ``completion``: one call's tandem parameters, and its outputs with their authorship
- ``admission``: checks a request before it enters
- ``generation_ends``: the token ids that end it
- ``runners.resuming``: its draws and its schedule's state, new or resumed

A step:

- ``runners.v1`` and ``runners.v2``: keep every request's author, and post those of the next rows
- ``step_authors``: passes them to the model, once per step
- ``senior``: runs both models; ``streams``: the junior on its own CUDA stream
- ``heads``: gives each row the logits of its author
- ``speculative``: all of this with drafts, in the order of ``speculative.step``

Afterwards:

- ``record``: who wrote each token, for audits
- ``measures``: how well each model predicts the other's tokens
- ``token_scores``: both models' log probabilities of each token, by request

``TandemLLM`` is imported from here; importing this package alone imports no vLLM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tandem_plugin.engine.llm import TandemLLM

__all__ = ["TandemLLM"]


def __getattr__(name: str) -> Any:
    if name == "TandemLLM":
        from tandem_plugin.engine.llm import TandemLLM

        return TandemLLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
