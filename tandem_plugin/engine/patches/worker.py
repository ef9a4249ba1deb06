"""vLLM's workers: sleep level 2, which discards weights, and the measures they report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tandem_plugin.engine.base_junior import check_may_sleep
from tandem_plugin.engine.wire_names import RPC_MEASURES, RPC_TOKEN_SCORES
from tandem_plugin.patching.wrapping import wrap_once

__all__ = ["copy_juniors_out_once", "let_workers_tell_of_measures"]


def copy_juniors_out_once() -> None:
    """Preserve a frozen junior through sleep level 2 with one copy on the host.

    Touches: ``Worker.sleep`` and ``Worker.wake_up`` of vLLM's GPU worker. Versions: 0.24 to 0.32.
    Why: they copy every buffer to the host at each sleep and back at each wake-up, including the
    whole junior, which never changes, and they lose its tensors that are neither parameters nor
    buffers. Workers with their own sleep still find the junior among the model's buffers. Pending
    measurements are completed before a sleep of any level. Goes when: vLLM lets a model define how
    its weights survive a sleep.
    """
    from vllm.v1.worker.gpu_worker import Worker

    def sleep(original: Callable[..., Any], worker: Any, level: int = 1) -> Any:
        check_may_sleep(worker.model_runner.model, level)
        measures = getattr(worker.model_runner.model, "tandem_measures", None)
        if measures is not None:
            measures.finish()  # while both heads are loaded
        if level == 2:
            for copy in _host_copies(worker):
                copy.hold()
        return original(worker, level)

    def wake_up(original: Callable[..., Any], worker: Any, tags: Any = None) -> Any:
        result = original(worker, tags)
        if tags is None or "weights" in tags:
            for copy in _host_copies(worker):
                copy.restore()
        return result

    wrap_once(Worker, "sleep", sleep)
    wrap_once(Worker, "wake_up", wake_up)


def _host_copies(worker: Any) -> list[Any]:
    """The host copies of a worker's junior: of its model, its draft model, or none."""
    models = [worker.model_runner.model]
    if hasattr(worker, "get_draft_model"):
        models.append(worker.get_draft_model())
    copies = [getattr(model, "tandem_host_copy", None) for model in models]
    return [copy for copy in copies if copy is not None]


def let_workers_tell_of_measures() -> None:
    """Let ``collective_rpc`` return what each worker has measured.

    ``"tandem_measures"``: the sums since startup; ``"tandem_token_scores"`` with a list of request
    names: their tokens' scores, which are then deleted. Touches: ``WorkerBase``, which gets two
    more methods. Versions: 0.24 to 0.32. Why, as for drafts: the front end can only call a worker's
    methods by name. Goes when: vLLM lets a model state add to its workers' answers.
    """
    from vllm.v1.worker.worker_base import WorkerBase

    setattr(WorkerBase, RPC_MEASURES, _worker_measures)
    setattr(WorkerBase, RPC_TOKEN_SCORES, _worker_token_scores)


def _worker_measures(worker: Any) -> dict[str, float]:
    found: dict[str, float] = _measures(worker).sums().to_row()
    return found


def _worker_token_scores(worker: Any, names: Sequence[str]) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = _measures(worker).take_tokens(names)
    return found


def _measures(worker: Any) -> Any:
    return worker.model_runner.get_model().tandem_measures
