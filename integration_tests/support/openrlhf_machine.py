"""What a run of OpenRLHF needs of a machine without a GPU: its environment and its arguments."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

WITHOUT_FLASH_ATTN = (
    Path(__file__).resolve().parents[2] / "adapters" / "tandem_openrlhf" / "without_flash_attn"
)
"""What stands for flash-attn, where it is not installed: a folder for PYTHONPATH."""

ARGUMENTS: Mapping[str, str] = {
    "--actor.num_nodes": "1",
    "--actor.num_gpus_per_node": "1",
    "--ref.num_gpus_per_node": "1",
    "--vllm.num_engines": "1",
    "--vllm.tensor_parallel_size": "1",
    "--vllm.gpu_memory_utilization": "0.05",
    "--vllm.sync_backend": "gloo",
    "--ds.attn_implementation": "eager",
    "--ds.zero_stage": "2",
}
"""One process of each kind; with ``--vllm.enforce_eager``."""


def variables(ray: Path) -> dict[str, str]:
    """Environment variables of a run, but for PYTHONPATH. ray: Ray's folder, of a short name."""
    return {
        "RAY_OVERRIDE_RESOURCES": '{"CPU": 8, "GPU": 4, "object_store_memory": 200000000}',
        "DS_ACCELERATOR": "cpu",
        "PATH": path(),
        **variables_of_ray(ray),
    }


def variables_of_ray(ray: Path) -> dict[str, str]:
    """Those with which Ray and the libraries take what a small machine has, and nothing online."""
    return {
        "RAY_ADDRESS": "local",
        "RAY_TMPDIR": str(ray),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_worker_niceness": "0",
        "RAY_prestart_worker_first_driver": "0",
        "RAY_memory_monitor_refresh_ms": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }


def path() -> str:
    """Where this environment's own commands are found first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
