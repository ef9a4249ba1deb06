"""The command ``python -m tandem_trl.grpo``: ``trl grpo`` in tandem.

::

    accelerate launch -m tandem_trl.grpo --tandem.schedule word <the arguments of trl grpo>

Tandem's settings are its flags, ``TANDEM_CONFIG``, or ``tandem:`` in the file that TRL's
``--config`` names; ``--tandem.engine`` is a JSON object of further arguments of ``vllm.LLM``.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tandem_plugin.errors import ConfigError
from tandem_plugin.training.command import settings_of_command
from tandem_trl.rollouts import TandemRollouts
from tandem_trl.settings import settings_of_file, with_file
from tandem_trl.start import GRPOSettings

if TYPE_CHECKING:
    from trl import TrlParser


def prepare(arguments: Sequence[str]) -> list[str]:
    """Enable tandem for the trainer of TRL's script, and return the script's own arguments.

    They come from flags, ``TANDEM_CONFIG`` and the file of ``--config``, which may not disagree.

    Touches: ``trl.GRPOTrainer``, where ``trl.scripts.grpo`` looks it up (TRL 1.16). Why: the script
    accepts no rollout function. Goes when: it does. Raises :class:`ConfigError` for invalid or
    missing settings.
    """
    import trl

    settings = settings_of_command(
        with_file(arguments), "trl grpo", settings_of_file, apart=("engine",)
    )
    rollouts = TandemRollouts(settings.tandem, settings.apart.get("engine") or {})
    trl.GRPOTrainer = functools.partial(trl.GRPOTrainer, rollout_func=rollouts)
    return settings.trainer_arguments


def main(arguments: Sequence[str]) -> None:
    """Run TRL's script in tandem."""
    with GRPOSettings.as_command():
        GRPOSettings.version()  # or an error
        import trl
        from trl.scripts import grpo

        parser = grpo.make_parser(prog="python -m tandem_trl.grpo")
        flags_of_trl = prepare(arguments)
        parsed = parsed_whole(parser, flags_of_trl)
        rollouts = trl.GRPOTrainer.keywords["rollout_func"]
        trainer, model = trl.GRPOTrainer.func, parsed[2].model_name_or_path
        rollouts.check(GRPOSettings, parsed[1], model, trainer)
    grpo.main(*parsed)


def parsed_whole(parser: TrlParser, arguments: Sequence[str]) -> Sequence[Any]:
    """What TRL's parser reads of a command and its file.

    Raises :class:`ConfigError` for an argument or a key of the file that it does not know.
    """
    *parsed, of_file, of_command = parser.parse_args_and_config(
        list(arguments), return_remaining_strings=True, separate_remaining_strings=True
    )
    keys = [key.removeprefix("--") for key in of_file[::2]]  # each is followed by its value
    ours_apart = [key for key in keys if key.partition(".")[0] != "tandem"]
    _check_known(parser, "The file of --config", ours_apart)
    flags = [argument for argument in of_command if argument.startswith("-")]
    _check_known(parser, "The command", flags or of_command)
    return list(parsed)


def _check_known(parser: argparse.ArgumentParser, where: str, unknown: Iterable[str]) -> None:
    """Raise :class:`ConfigError` for the first unknown name, with the one that is most like it."""
    for name in unknown:
        destinations = [action.dest for action in parser._actions]
        raise ConfigError.misspelt(
            "trl-config-key-unknown", name.partition("=")[0], destinations, where=where, name=name
        )


if __name__ == "__main__":
    main(sys.argv[1:])
