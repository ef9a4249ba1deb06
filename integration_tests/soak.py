"""A long soak of a tandem engine under random traffic: ``python integration_tests/soak.py``.

Requests of random schedule, length, sampling parameters, arrival and abort meet a KV cache that is
far too small. Held at the end: the engine's own record equals the replay for every response, no
request is lost, greedy responses equal a Hugging Face loop of Algorithm 1, memory is steady. With
``--graphs`` the engine captures and replays as on a GPU. Progress is shown, and the report is
written to ``--out`` round by round.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

SETTINGS = {"schedule": "word", "cap": 4}
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "OMP_NUM_THREADS": "1",
    # A function is sent to the engine's worker to count its graphs.
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=3_000)
    parser.add_argument("--round", type=int, default=250, help="requests between two checks")
    parser.add_argument("--longest", type=int, default=48, help="tokens of a response at most")
    parser.add_argument("--runner", choices=["v1", "v2"], default="v1")
    parser.add_argument(
        "--mode", choices=["lockstep", "speculative"], default="lockstep",
        help="speculative takes runner v2, and leaves out what it refuses",
    )  # fmt: skip
    parser.add_argument("--async-scheduling", action="store_true", help="V2 only")
    parser.add_argument(
        "--graphs", action="store_true", help="under CUDA graphs: see support/graphs"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/soak.json"))
    args = parser.parse_args()
    if args.mode == "speculative":
        args.runner = "v2"
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with ExitStack() as stack:
        summary = soak(start(stack, args), args)
    # vLLM's CPU build itself strays now and then.
    strayed = len(summary["greedy_differences"]) > summary["greedy_checked"] // 10
    bad = summary["mismatches"] or summary["lost"] or not summary["preemptions"]
    return int(bool(bad) or strayed or not all(summary["graph_replays"].values()))


def start(stack: ExitStack, args: Any) -> Any:
    """An engine of little memory with a record, and a Hugging Face loop beside it."""
    from support.checked_engine import TIGHT, CheckedEngine
    from support.engine import async_engine
    from support.graphs import with_graphs
    from support.models import make_model, make_tokenizer
    from support.reference import Reference

    from tandem_plugin.config import DEFAULT_DRAFT_TOKENS

    folder, tokenizer = Path(tempfile.mkdtemp(prefix="tandem-soak-")), make_tokenizer()
    senior = make_model(folder / "senior", seed=0, tokenizer=tokenizer)
    shape = {"hidden": 96, "layers": 3, "heads": 6, "kv_heads": 3}
    junior = make_model(folder / "junior", seed=2, tokenizer=tokenizer, **shape)
    tandem = {**SETTINGS, "junior": junior, "record": folder / "record", "mode": args.mode}
    graphs = stack.enter_context(with_graphs()) if args.graphs else {}
    scheduling = args.async_scheduling
    running = stack.enter_context(
        async_engine(args.runner, senior, tandem, async_scheduling=scheduling, **graphs, **TIGHT)
    )
    spare = 2 * (DEFAULT_DRAFT_TOKENS + 1) if args.mode == "speculative" else int(scheduling)
    references = {"senior": Reference(senior, junior)}
    return CheckedEngine(running, folder / "record", tokenizer, SETTINGS, spare, references)


def soak(engine: Any, args: Any) -> dict[str, Any]:
    from rich.progress import track
    from support import traffic, worker
    from support.metrics import metric

    counted = ("requests", "samples", "tokens", "aborted", "greedy_checked")
    summary: dict[str, Any] = {
        **{name: str(value) for name, value in vars(args).items()},
        **dict.fromkeys(counted, 0),
        **{name: [] for name in ("mismatches", "lost", "greedy_differences", "memory_mib")},
        "graph_replays": {},
    }
    begin = time.monotonic()
    for number in track(range(-(-args.requests // args.round)), description="Soak"):
        jobs = traffic.random_jobs(
            args.round, engine.tokenizer, args.seed + number, longest=args.longest, arrival=0.005,
            seeded=args.runner == "v2", drafted=args.mode == "speculative",
        )  # fmt: skip
        responses = engine.send(jobs)
        report = engine.report(jobs, responses)
        plain = list(traffic.plain_greedy(responses))[:8]
        for name in counted[:-1]:
            summary[name] += getattr(report, name)
        summary["greedy_checked"] += len(plain)
        summary["greedy_differences"] += list(engine.differing(plain).items())
        summary["lost"] += report.lost
        summary["mismatches"] += report.mismatches
        summary["preemptions"] = int(metric("vllm:num_preemptions_total"))
        summary["prefix_cache_hits"] = int(metric("vllm:prefix_cache_hits_total"))
        if args.graphs:
            summary["graph_replays"] = engine.call(worker.graph_replays)
        summary["memory_mib"].append(memory_of_children())
        summary["seconds"] = round(time.monotonic() - begin, 1)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=2))
    return summary


def memory_of_children() -> int:
    """Resident memory of the engine's processes, in MiB."""
    import psutil

    children = psutil.Process().children(recursive=True)
    return sum(child.memory_info().rss for child in children) // 2**20


if __name__ == "__main__":
    sys.exit(main())
