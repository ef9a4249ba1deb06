"""vLLM's workers: what precedes a sleep, and the measures they report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tandem_plugin.engine.base_junior import check_may_sleep
from tandem_plugin.engine.generation_ends import added_ends
from tandem_plugin.engine.wire import RPC_ENDS, RPC_MEASURES, RPC_TOKEN_SCORES
from tandem_plugin.patching.wrapping import wrap_once


def prepare_sleep() -> None:
    """Complete pending measurements before a sleep, and reject one that loses a shared base.

    A separate junior needs nothing more: vLLM saves a model's buffers at level 2, and the junior's
    tensors are among them. Touches: ``Worker.sleep`` of vLLM's GPU worker. Versions: 0.24 to 0.32.
    Why: measuring needs both heads, and nothing reloads a base that is also the junior. Goes when:
    vLLM lets a model define how its weights survive a sleep.
    """
    from vllm.v1.worker.gpu_worker import Worker

    def sleep(original: Callable[..., Any], worker: Any, level: int = 1) -> Any:
        model = worker.model_runner.model
        check_may_sleep(model, level)
        if (measures := getattr(model, "tandem_measures", None)) is not None:
            measures.finish()
        return original(worker, level)

    wrap_once(Worker, "sleep", sleep)


def let_workers_tell_of_measures() -> None:
    """Let ``collective_rpc`` return what each worker has measured.

    ``"tandem_measures"``: the sums since startup; ``"tandem_token_scores"`` with a list of request
    names: their tokens' scores, which are then deleted; ``"tandem_ends"``: the junior's ends that a
    trainer does not know. Touches: ``WorkerBase``, which gets three more methods. Versions: 0.24 to
    0.32. Why, as for drafts: the front end can only call a worker's methods by name. Goes when:
    vLLM lets a model state add to its workers' answers.
    """
    from vllm.v1.worker.worker_base import WorkerBase

    setattr(WorkerBase, RPC_MEASURES, _worker_measures)
    setattr(WorkerBase, RPC_TOKEN_SCORES, _worker_token_scores)
    setattr(WorkerBase, RPC_ENDS, _worker_ends)


def _worker_measures(worker: Any) -> dict[str, float]:
    sums: dict[str, float] = _measures(worker).sums().to_row()
    return sums


def _worker_token_scores(worker: Any, names: Sequence[str]) -> dict[str, list[list[float]]]:
    scores: dict[str, list[list[float]]] = _measures(worker).take_tokens(names)
    return scores


def _worker_ends(worker: Any) -> list[int]:
    return sorted(added_ends(worker.vllm_config))


def _measures(worker: Any) -> Any:
    return worker.model_runner.get_model().tandem_measures
