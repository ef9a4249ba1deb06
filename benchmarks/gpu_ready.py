"""Whether this Python can run engines on a GPU, and with which sentence it cannot."""

from __future__ import annotations

import sys
from dataclasses import dataclass

__all__ = ["Refusal", "refusal"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing can be run here."""

    sentence: str
    status: int
    """Of the command: 0 where there is no GPU, since nothing is wrong then."""


def refusal(toy: bool) -> Refusal | None:
    """What keeps this Python from running parts, if anything does."""
    try:
        import torch
    except ImportError as error:
        return Refusal(
            f"{sys.executable} cannot import PyTorch ({error}): give the interpreter that has vLLM "
            "and tandem-plugin, as in make test-gpu PYTHON=/path/to/python.",
            1,
        )
    if not toy and not torch.cuda.is_available():
        return Refusal(
            f"No GPU: PyTorch {torch.__version__} of {sys.executable} finds none. Nothing was run, "
            "and nothing is claimed. With --toy the same runs at toy size on a CPU, which shows "
            "that it starts and ends, and nothing else.",
            0,
        )
    from tandem_plugin.cli.checks import CHECKS
    from tandem_plugin.cli.machine import Machine

    machine = Machine.here()
    if machine.vllm is None:
        return Refusal(f"vLLM is not installed for {sys.executable}: install it beside torch.", 1)
    findings = [check(machine) for check in CHECKS]
    wrong = [f for f in findings if f.check in _NEEDED and f.status != "ok"]
    for finding in wrong:
        print(f"{finding.check}: {finding.message} {finding.mend}".rstrip())
    if any(finding.status == "problem" for finding in wrong):
        return Refusal("Nothing was run: mend this first (tandem doctor looks again).", 1)
    return None


_NEEDED = {"tandem-plugin", "torch", "vllm", "vllm runner", "engine plugin", "VLLM_PLUGINS"}
"""The checks of ``tandem doctor`` without which no engine would run in tandem."""
