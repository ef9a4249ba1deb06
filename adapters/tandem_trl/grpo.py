"""The command ``python -m tandem_trl.grpo``: ``trl grpo`` in tandem.

::

    accelerate launch -m tandem_trl.grpo --tandem.schedule word <the arguments of trl grpo>

Tandem's settings are its flags, or ``TANDEM_CONFIG``; ``--tandem.engine`` is a JSON object of
further arguments of ``vllm.LLM``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from tandem_plugin.errors import ConfigError, TandemError
from tandem_plugin.training.command import environment_settings, split_arguments
from tandem_trl.rollouts import tandem_rollouts


def prepare(arguments: Sequence[str]) -> list[str]:
    """Enable tandem for the trainer of TRL's script, and return the script's own arguments.

    Touches: ``trl.GRPOTrainer``, where ``trl.scripts.grpo`` looks it up (TRL 1.16). Why: the script
    accepts no rollout function. Goes when: it does. Raises :class:`ConfigError` for invalid or
    missing settings.
    """
    import trl

    flags, others = split_arguments(arguments)
    engine = flags.pop("engine", None)
    given = environment_settings()
    if given is None and not flags:
        raise ConfigError("TP426", plain="trl grpo")
    rollouts = tandem_rollouts(engine, **{**(given or {}), **flags})
    trl.GRPOTrainer = functools.partial(trl.GRPOTrainer, rollout_func=rollouts)
    return others


def main(arguments: Sequence[str]) -> None:
    """Run TRL's script in tandem."""
    from trl.scripts import grpo

    parser = grpo.make_parser(prog="python -m tandem_trl.grpo")
    try:
        others = prepare(arguments)
    except TandemError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    grpo.main(*parser.parse_args_and_config(others, fail_with_unknown_args=False)[:4])


if __name__ == "__main__":
    main(sys.argv[1:])
