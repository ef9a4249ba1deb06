"""The settings that the paper states, those of its code, and of its release: one table for all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from tandem_plugin.errors import ConfigError

RELEASE = "7ba85e0f6cee0ba76fb49a11fc7457828b24e4bc"
"""The commit of CSSLab/Tandem-RLVR that the protocol ``release`` follows."""

PAPERS_CODE = "f0ae0b9263277b21fceafe8730dbf7c3eab8f587"
"""The one that ``paper-code`` follows: its README names the paper's figures and its scripts."""

SOURCES = {
    "paper": "arXiv:2606.28166",
    "paper-code": f"CSSLab/Tandem-RLVR {PAPERS_CODE}",
    "release": f"CSSLab/Tandem-RLVR {RELEASE}",
}


@dataclass(frozen=True, slots=True)
class Stated:
    """A value, and where it is stated: a section of the paper, or a file of the release."""

    value: Any
    source: str


PROTOCOLS: Mapping[str, Mapping[str, Stated]] = {
    "paper": {
        "samples": Stated(32, "section 4.2, the largest k"),
        "team_samples": Stated(8, "section 4.3, the largest k"),
        "schedule": Stated(["step"], "section 4.3: at every token with a blank line"),
        "over": Stated("positions", "section 4.5: averaged over all positions"),
        "cap": Stated(32, "section 3.3: after more than K tokens; appendix A.3"),
        "validation": Stated("team", "section 5.1: tandem-rollout accuracy"),
        "validation_n": Stated(4, "appendix A.3"),
        "lambda_jun": Stated(0.0, "section 3.4, appendix A.3"),
    },
    "paper-code": {
        "temperature": Stated(0.7, "tandem_eval/MATH/eval_solo.py"),
        "top_p": Stated(0.8, "tandem_eval/MATH/eval_solo.py"),
        "top_k": Stated(20, "tandem_eval/MATH/eval_solo.py"),
        "team_temperature": Stated(0.6, "tandem_eval/MATH/eval_sentence_handoff.py"),
        "team_top_p": Stated(0.95, "tandem_eval/MATH/eval_sentence_handoff.py"),
        "team_top_k": Stated(0, "tandem_eval/MATH/eval_sentence_handoff.py: all tokens"),
        "template_args": Stated(["enable_thinking=false"], "eval_solo.py; training likewise"),
        "max_tokens": Stated(3000, "tandem_eval/MATH/eval_solo.py"),
        "context": Stated(4096, "tandem_eval/MATH/eval_solo.py, MAX_MODEL_LEN"),
        "samples": Stated(32, "section 4.2, the largest k; tandem_eval/MATH/eval_solo.py has 16"),
        "team_samples": Stated(8, "section 4.3, the largest k; eval_sentence_handoff.py has 4"),
        "schedule": Stated(
            ["step"],
            "eval_sentence_handoff.py and vllm_source/vllm/v1/sample/tandem_sampler.py: strict "
            "alternation at tokens that end in a blank line, the senior first",
        ),
        "cap": Stated(31, "tandem_sampler.py: draws on the 32nd token without a boundary"),
        "validation": Stated("team", "verl/run_tandem_native_grpo_deepscaler.sh: by the team"),
        "validation_n": Stated(4, "verl/run_tandem_native_grpo_deepscaler.sh, val_kwargs.n"),
        "test_freq": Stated(20, "verl/run_tandem_native_grpo_deepscaler.sh"),
        "save_freq": Stated(20, "verl/run_tandem_native_grpo_deepscaler.sh"),
        "lambda_jun": Stated(0.0, "run_tandem_native_grpo_deepscaler.sh, tandem_jr_tkn_weight"),
    },
    "release": {
        "temperature": Stated(0.7, "eval/config.py"),
        "top_p": Stated(0.8, "eval/config.py"),
        "top_k": Stated(20, "eval/config.py"),
        "template_args": Stated(["enable_thinking=false"], "eval/common.py, chat_prefix"),
        "max_tokens": Stated(3000, "eval/config.py"),
        "context": Stated(4088, "eval/common.py: 4,096 less a reserve of 8"),
        "samples": Stated(8, "eval/run_all.sh"),
        "team_samples": Stated(8, "eval/run_all.sh"),
        "schedule": Stated(["step-text"], "eval/handoff.py: by text, 150 rounds"),
        "over": Stated("responses", "eval/legibility.py: the mean of each response's mean"),
        "template": Stated("{problem} {instruction}", "data/build_deepscaler.py, BOXED_INSTR"),
        "instruction": Stated(
            "Solve the following math problem step by step. Put your final answer inside "
            "\\boxed{}, like \\boxed{42} or \\boxed{\\frac{1}{2}}.",
            "data/build_deepscaler.py, BOXED_INSTR",
        ),
        "always_instructed": Stated(True, "data/build_deepscaler.py: whatever the problem says"),
        "heldout": Stated(1000, "data/build_deepscaler.py"),
        "draws_rows": Stated(True, "data/build_deepscaler.py: drawn by pandas"),
        "cap": Stated(31, "tests/test_word_state_machine.py: a cap of 4 draws on the 4th token"),
        "validation": Stated("senior", "docs/ARCHITECTURE.md: the senior alone"),
        "validation_n": Stated(1, "train/tandem_grpo.sh, VAL_N"),
        "test_freq": Stated(20, "train/tandem_grpo.sh"),
        "save_freq": Stated(20, "train/tandem_grpo.sh"),
        "steps": Stated(4912, "train/tandem_grpo.sh: 2 epochs of 39,309 problems, 16 a step"),
        "lambda_jun": Stated(0.0, "train/tandem_grpo.sh, JR_TKN_WEIGHT"),
    },
}

PAPERS_RUN: Mapping[str, Stated] = {
    "model": Stated("Qwen/Qwen3-4B-Instruct-2507", "section 4.1"),
    "junior": Stated(None, "section 3.2: the senior's own start"),
    "problems": Stated("deepscaler", "section 4.1, appendix A.2"),
    "reward": Stated(("math",), "section 4.1, appendix A.2: binary, on the boxed answer"),
    "prompts": Stated(16, "appendix A.3"),
    "samples": Stated(8, "appendix A.3"),
    "updates": Stated(2, "appendix A.3: two updates of 8 problems a step"),
    "max_response": Stated(3000, "appendix A.3"),
    "temperature": Stated(0.6, "appendix A.3"),
    "learning_rate": Stated(1e-6, "appendix A.3"),
    "gpus": Stated(2, "appendix A.3: one for each model"),
}
"""What the paper states of its training, by the names of a recipe's settings."""

PAPERS_TANDEM: Mapping[str, Stated] = {
    "schedule": Stated("word", "section 3.3, appendix A.3"),
    "boundaries": Stated(None, "appendix A.1.2: tokens with the marker of a leading space"),
    "p": Stated(0.5, "appendix A.3"),
    "cap": PROTOCOLS["paper"]["cap"],
    "alone": Stated(0.0, "algorithm 1: every response is the team's"),
    "validation": PROTOCOLS["paper"]["validation"],
    "lambda_jun": PROTOCOLS["paper"]["lambda_jun"],
}
"""The same, by the names of tandem's settings."""

_TRAINING = (
    *("cap", "validation", "validation_n", "test_freq", "save_freq", "steps"),
    "lambda_jun",
)
_JUNIOR_WEIGHT = re.compile(r"(?:lambda_jun|tandem_jr_tkn_weight)[= ]+(\S+)")


def defaults(name: str) -> dict[str, Any]:
    """The values of a protocol, by the names that the commands' parameters have."""
    return {setting: stated.value for setting, stated in PROTOCOLS[name].items()}


def record(name: str | None, used: Mapping[str, Any]) -> dict[str, Any] | None:
    """An output's record of its protocol; None without one.

    used: the command's settings. ``stated`` has those that the protocol states, ``overridden`` the
    values used instead of them, ``not_stated`` those that only a different protocol states.
    """
    if name is None:
        return None
    table = PROTOCOLS[name]
    every_setting = {setting for protocol in PROTOCOLS.values() for setting in protocol}
    other_settings = every_setting - set(table)
    in_protocol = {setting: table[setting] for setting in used if setting in table}
    return {
        "name": name,
        "source": SOURCES[name],
        "stated": {setting: asdict(stated) for setting, stated in in_protocol.items()},
        "overridden": {s: used[s] for s, stated in in_protocol.items() if used[s] != stated.value},
        "not_stated": {
            setting: value for setting, value in used.items() if setting in other_settings
        },
    }


def training_settings(name: str, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """The settings of training that a protocol states.

    arguments: the trainer's further arguments. Raises :class:`ConfigError` for an unknown protocol,
    and for a weight of the junior's tokens under the protocols of the authors' code: there it is
    one in the policy loss, which has no counterpart here.
    """
    if name not in PROTOCOLS:
        raise ConfigError("protocol-unknown", name=name, known=", ".join(PROTOCOLS))
    weights = _JUNIOR_WEIGHT.findall(" ".join(arguments))
    if name != "paper" and any(weight not in ("0", "0.0") for weight in weights):
        raise ConfigError("protocol-junior-loss-weight", weight=weights[-1])
    return {setting: s.value for setting, s in PROTOCOLS[name].items() if setting in _TRAINING}


_ARGUMENTS = ("data.apply_chat_template_kwargs", "generator.chat_template_kwargs")
"""Where verl and SkyRL take the arguments of the template."""
_TEMPLATES = ("actor_rollout_ref.model.custom_chat_template", "data.tokenizer_chat_template")
"""Where verl and OpenRLHF take a template in place of the tokenizer's."""


def template_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """The arguments of the chat template in a trainer's own arguments; later ones win.

    verl and SkyRL have a setting for them, verl and OpenRLHF a template in place of the
    tokenizer's.
    """
    template_options: dict[str, Any] = {}
    for name, value in _settings(arguments):
        setting, inside, key = name.partition("_kwargs.")
        if name in _ARGUMENTS:
            template_options |= value or {}
        elif inside and f"{setting}_kwargs" in _ARGUMENTS:
            template_options[key] = value
        elif name in _TEMPLATES and value:
            template_options["chat_template"] = value
    return template_options


def _settings(arguments: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """(name, value) of overrides of templates, and of OpenRLHF's options in both forms."""
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = argument.partition("=")
        if name.startswith("--"):
            yield name[2:], value if equals else following
        elif name.lstrip("+").startswith((*_ARGUMENTS, *_TEMPLATES)):
            yield name.lstrip("+"), _hydra_value(value)


def _hydra_value(text: str) -> Any:
    """The value of an override in Hydra's grammar, as SkyRL reads it too; itself without Hydra."""
    with suppress(ImportError):
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from hydra.errors import HydraException

        with suppress(HydraException):
            return OverridesParser.create().parse_override(f"x={text}").value()
    return text
