"""A long soak of a tandem engine under random traffic: ``python integration_tests/soak.py``.

Requests of random schedule, length, sampling parameters, arrival and abort meet a KV cache that is
far too small. Held at the end: the engine's own record equals the replay for every response, no
request is lost, greedy responses equal a Hugging Face loop of Algorithm 1, memory is steady. With
``--graphs`` the engine captures and replays as on a GPU.
Progress is shown, and the report is written to ``--out`` round by round.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

TANDEM = {"schedule": "word", "cap": 4}
TIGHT = {
    "block_size": 32,
    "num_gpu_blocks_override": 14,
    "max_num_batched_tokens": 96,
    "max_num_seqs": 16,
    "enable_prefix_caching": True,
    "disable_log_stats": False,
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
    parser.add_argument(
        "--plain", action="store_true", help="the same traffic for the senior alone: vLLM's noise"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/soak.json"))
    args = parser.parse_args()
    if args.mode == "speculative":
        args.runner = "v2"
    prepare_environment()

    from support.engine import async_engine
    from support.graphs import with_graphs
    from support.models import make_model, make_tokenizer

    folder = Path(tempfile.mkdtemp(prefix="tandem-soak-"))
    tokenizer = make_tokenizer()
    make_model(folder / "senior", seed=0, tokenizer=tokenizer)
    make_model(
        folder / "junior", seed=2, tokenizer=tokenizer, hidden=96, layers=3, heads=6, kv_heads=3
    )
    tandem = None
    if not args.plain:
        tandem = {**TANDEM, "junior": folder / "junior", "record": folder / "record"}
        tandem["mode"] = args.mode
    with ExitStack() as stack:
        graphs = stack.enter_context(with_graphs()) if args.graphs else {}
        running = stack.enter_context(
            async_engine(
                args.runner,
                folder / "senior",
                tandem,
                async_scheduling=args.async_scheduling,
                **graphs,
                **TIGHT,
            )
        )
        summary = soak(running, folder, tokenizer, args)
    # vLLM's CPU build itself strays now and then: --plain measures how often.
    strayed = len(summary["greedy_differences"]) > summary["greedy_checked"] // 10
    bad = summary["mismatches"] + summary["lost"]
    replayed = all(summary["graph_replays"].values())
    return int(bool(bad) or strayed or not summary["preemptions"] or not replayed)


def prepare_environment() -> None:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # A function is sent to the engine's worker to count its graphs.
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"


def soak(running: Any, folder: Path, tokenizer: Any, args: Any) -> dict[str, Any]:
    from rich.progress import track
    from support import traffic, worker
    from support.boundary_ids import step_boundaries, word_boundaries
    from support.metrics import metric
    from support.reference import Reference

    from tandem_plugin.config import DEFAULT_DRAFT_TOKENS

    reference = Reference(folder / "senior", folder / "junior")
    rules = traffic.make_rules(tokenizer, TANDEM)
    words, steps = word_boundaries(tokenizer), step_boundaries(tokenizer)
    summary: dict[str, Any] = {
        "runner": args.runner,
        "mode": args.mode,
        "async_scheduling": args.async_scheduling,
        "plain": args.plain,
        "graphs": args.graphs,
        "graph_replays": {},
        **dict.fromkeys(("requests", "samples", "tokens", "aborted", "greedy_checked"), 0),
        "finished": {},
        "mismatches": [],
        "lost": [],
        "greedy_differences": [],
        "memory_mib": [],
    }
    start = time.monotonic()
    rounds = range(-(-args.requests // args.round))
    for number in track(rounds, description="Soak"):
        jobs = traffic.random_jobs(
            args.round, tokenizer, args.seed + number, longest=args.longest, arrival=0.005,
            seeded=args.runner == "v2", drafted=args.mode == "speculative",
        )  # fmt: skip
        if args.plain:
            jobs = [replace(job, tandem=None) for job in jobs]
        responses = running.run(traffic.send(running.engine, jobs, patience=3_600))
        last = traffic.Job(f"last-{number}", [5, 6], None, {"max_tokens": 2}, 0.0, None)
        running.run(traffic.send(running.engine, [last], patience=600))
        spare = 2 * (DEFAULT_DRAFT_TOKENS + 1) if args.mode == "speculative" else 0
        report = traffic.check(
            jobs, responses, rules, folder / "record", one_more=args.async_scheduling, spare=spare
        )
        for name in ("requests", "samples", "tokens", "aborted"):
            summary[name] += getattr(report, name)
        summary["finished"] = dict(Counter(summary["finished"]) + report.finished)
        summary["lost"] += report.lost
        summary["mismatches"] += report.mismatches
        for response in list(traffic.plain_greedy(responses))[:8]:
            authors = traffic.authors_by_plain_loop(response.job.tandem, TANDEM, words, steps)
            chosen = reference.choices(response.job.prompt, response.token_ids, authors())
            summary["greedy_checked"] += 1
            if response.token_ids != chosen:
                gap = reference.shortfall(response.job.prompt, response.token_ids, authors())
                summary["greedy_differences"].append(
                    {
                        "gap": round(gap, 3),
                        "job": response.job.name,
                        "tandem": response.job.tandem,
                        "prompt": response.job.prompt,
                        "response": response.token_ids,
                        "expected": chosen,
                    }
                )
        summary["preemptions"] = int(metric("vllm:num_preemptions_total"))
        summary["prefix_cache_hits"] = int(metric("vllm:prefix_cache_hits_total"))
        if args.graphs:
            count = running.engine.collective_rpc(worker.graph_replays)
            summary["graph_replays"] = running.run(count)[0]
        summary["memory_mib"].append(memory_of_children())
        summary["seconds"] = round(time.monotonic() - start, 1)
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
