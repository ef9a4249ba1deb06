"""Tools and environments for runs of TRL's, and an oracle of what such a run may train on.

The models are random: in place of TRL's parser, a count decides which turns call the tool.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from support.server import Server
from tandem_plugin.seeds import derive_seed

_answers = itertools.count()


def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: One number.
        b: The other.
    """
    number = next(_answers)
    if number % 5 == 4:
        raise ValueError("no fives")
    return " ".join(str(i) for i in range(40 if number % 7 == 6 else a + b))


class Adder:
    """An environment with the tool, which adds to the prompt."""

    def reset(self, **_: Any) -> str:
        self.calls = 0
        return " Use the tool."

    def add(self, a: int, b: int) -> str:
        """Add two numbers.

        Args:
            a: One number.
            b: The other.
        """
        self.calls += 1
        return add(a, b)

    def get_reward(self) -> float:
        return float(self.calls)


class Silent:
    """An environment without tools."""

    def reset(self, **_: Any) -> None:
        return None

    def get_reward(self) -> float:
        return 0.5


def with_tools(model: str) -> tuple[Any, dict[str, Any]]:
    """A third of the turns is the last one."""
    from trl import GRPOTrainer

    calls_tool(lambda number: number % 3 != 2)
    return GRPOTrainer, {"tools": [add], "processing_class": tokenizer(model)}


def with_environments(model: str) -> tuple[Any, dict[str, Any]]:
    """A choice of environments, and the other trainer that takes rollout functions."""
    from trl.experimental.gmpo import GMPOTrainer

    calls_tool(lambda number: number % 3 != 2)
    factories = {"adder": Adder, "silent": Silent}
    return GMPOTrainer, {"environment_factory": factories, "processing_class": tokenizer(model)}


def with_siblings(model: str) -> tuple[Any, dict[str, Any]]:
    """One of two siblings continues, whose first turns are equal."""
    from trl import GRPOTrainer

    calls_tool(lambda number: number % 2 == 1)
    return GRPOTrainer, {"tools": [add], "processing_class": tokenizer(model)}


def without_tools(model: str) -> tuple[Any, dict[str, Any]]:
    """A single turn."""
    from trl import GRPOTrainer

    return GRPOTrainer, {"processing_class": tokenizer(model)}


def with_rloo(model: str) -> tuple[Any, dict[str, Any]]:
    """The trainer without rollout functions."""
    from tandem_trl.rloo import TandemRLOOTrainer

    return TandemRLOOTrainer, {"processing_class": tokenizer(model)}


class Painter:
    """An environment that shows a picture at first, and another one at each call of its tool."""

    def reset(self, **_: Any) -> list[dict[str, Any]]:
        self.calls = 0
        self.first = next(_answers)
        return _shown(self.first)

    def add(self, a: int, b: int) -> list[dict[str, Any]]:
        """Paint a picture.

        Args:
            a: One number.
            b: The other.
        """
        self.calls += 1
        return _shown(100 + self.first + self.calls)

    def get_reward(self) -> float:
        return float(self.first % 4)


def _shown(seed: int) -> list[dict[str, Any]]:
    from support.images import picture

    return [{"type": "image", "image": picture(seed)}, {"type": "text", "text": " Look."}]


def with_pictures(model: str) -> tuple[Any, dict[str, Any]]:
    """Pictures of the data, in a single turn."""
    from trl import GRPOTrainer

    return GRPOTrainer, {"processing_class": processor(model)}


def with_painters(model: str) -> tuple[Any, dict[str, Any]]:
    """Pictures of an environment, over several turns."""
    from trl import GRPOTrainer

    calls_tool(lambda number: number % 3 != 2)
    return GRPOTrainer, {"environment_factory": Painter, "processing_class": processor(model)}


CASES: Mapping[str, Callable[[str], tuple[Any, dict[str, Any]]]] = {
    "none": without_tools,
    "tools": with_tools,
    "environments": with_environments,
    "siblings": with_siblings,
    "rloo": with_rloo,
    "pictures": with_pictures,
    "painters": with_painters,
}


def tokenizer(model: str) -> Any:
    """The model's, with a chat template that TRL knows."""
    import trl
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(model, padding_side="left")
    folder = Path(trl.__file__).parent / "chat_templates"
    found.chat_template = (folder / "qwen3_instruct_2507.jinja").read_text()
    return found


def processor(model: str) -> Any:
    """The model's processor of images, with a chat template that TRL knows."""
    import trl
    from transformers import AutoProcessor

    found = AutoProcessor.from_pretrained(model)
    folder = Path(trl.__file__).parent / "chat_templates"
    found.chat_template = (folder / "qwen3_vl.jinja").read_text()
    found.tokenizer.padding_side = "left"
    return found


def calls_tool(is_call: Callable[[int], bool]) -> None:
    """Let the parsed turns of these numbers call the tool, with small numbers."""
    from trl.trainer import grpo_trainer

    numbers = itertools.count()

    def parse(reader: Any, ids: Any, prefix: Any = None, tools: Any = None) -> dict[str, Any]:
        message = {"role": "assistant", "content": reader.decode(ids)}
        if not tools or not is_call(next(numbers)):
            return message
        call = {"name": "add", "arguments": {"a": len(ids) % 5, "b": 1}}
        return {**message, "tool_calls": [{"type": "function", "function": call}]}

    grpo_trainer.parse_response = parse


def watched(trainer: Any) -> dict[str, list[Any]]:
    """What a trainer generates and computes losses of, as it comes."""
    caught: dict[str, list[Any]] = {"generated": [], "losses": []}
    generate, loss = trainer._generate, trainer._compute_loss

    def generated(prompts: Any) -> Any:
        found = generate(prompts)
        prompt_ids, completions, mask, _, log_probs, *_ = found
        phase = "training" if trainer.model.training else "validation"
        step = trainer.state.global_step + trainer.model.training
        one = {"phase": phase, "step": step, "prompts": [list(ids) for ids in prompt_ids]}
        columns = {"completions": completions, "masks": mask, "log_probs": log_probs}
        caught["generated"].append(json.loads(json.dumps({**one, **columns})))
        return found

    @functools.wraps(loss)  # under its name, by which the adapter knows it
    def computed(model: Any, inputs: Any) -> Any:
        if model.training:
            caught["losses"] += _rows(inputs)
        return loss(model, inputs)

    # Random models end too seldom: half of the responses then count as not truncated.
    trainer.eos_token_ids = [*trainer.eos_token_ids, *range(0, 1024, 2)]
    trainer._compute_loss = computed
    if hasattr(trainer, "_tool_call_loop"):  # RLOO has no masks there
        trainer._generate = generated
    return caught


def kept_gradients() -> Any:
    """A callback that keeps the first update's gradients, by name, in ``gradients.pt``."""
    from transformers import TrainerCallback

    class Keeping(TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **about: Any) -> None:
            named = about["model"].named_parameters()
            gradients = {name: p.grad.clone() for name, p in named if p.grad is not None}
            if not (file := Path("gradients.pt")).exists():
                torch.save(gradients, file)

    return Keeping()


def _rows(inputs: Mapping[str, Any]) -> list[list[list[int]]]:
    """Of each row of a loss that is not left out: its response, and the mask over it."""
    rows = []
    for ids, own, mask in zip(
        *(inputs[name] for name in ("completion_ids", "completion_mask", "tool_mask")), strict=True
    ):
        length = int(own.sum())
        if length:
            rows.append([ids[:length].tolist(), mask[:length].tolist()])
    return rows


def settle(trainer: Any) -> None:
    """The engine records a request at the step after its last one."""
    from vllm import SamplingParams

    params = SamplingParams(max_tokens=2, extra_args={"tandem": "off"})
    engine = trainer.vllm_generation.llm
    engine._target.generate([{"prompt_token_ids": [5, 6]}], params, use_tqdm=False)


def expected_mask(
    response: Sequence[int],
    seed_of_call: Callable[[int], int],
    records: Mapping[int, Mapping[str, Any]],
    marker: Sequence[int],
) -> tuple[list[int], int]:
    """The senior's tokens of a response by the engine's record alone, and its number of turns.

    marker: the tokens before each turn but the first.
    """
    mask = [0] * len(response)
    start = turns = 0
    while seed_of_call(turns) in records:
        record = records[seed_of_call(turns)]
        written, authors = record["response_ids"], record["authorship"]
        kept = min(len(written), len(response) - start)
        assert list(response[start : start + kept]) == written[:kept], (turns, start)
        mask[start : start + kept] = [int(bit) for bit in authors[:kept]]
        turns, end = turns + 1, start + kept
        if end == len(response):
            return mask, turns
        following = range(end, len(response) - len(marker) + 1)
        start = len(marker) + next(
            i for i in following if list(response[i : i + len(marker)]) == list(marker)
        )
    raise AssertionError(f"tokens from {start} on that no call of the row wrote")


def expected_of(
    one: Mapping[str, Any],
    seed: int,
    number: int,
    records: Any,
    marker: Sequence[int],
    first: int = 0,
) -> list[tuple[list[int], int]]:
    """:func:`expected_mask` of every row of a generation.

    number: of the generation among those of its step. first: the first row of its process.
    """
    return [
        expected_mask(
            response,
            lambda call, row=row: derive_seed(  # type: ignore[misc]
                seed, one["phase"], one["step"], number, row, call
            ),
            records,
            marker,
        )
        for row, response in enumerate(one["completions"], first)
    ]


def settle_server(server: Server) -> None:
    """As :func:`settle`, of a server."""
    body = {"model": "team", "prompt": [5, 6], "max_tokens": 2, "vllm_xargs": {"tandem": "off"}}
    status, answer = server.post("/v1/completions", body)
    assert status == 200, answer


def log_probs_of_both(
    server: Server, senior: Path, junior: Path, model: str = "team"
) -> list[tuple[list[float], list[float]]]:
    """Of a response by each alone, the senior first: a server's log-probabilities, and a model's.

    senior, junior: the checkpoints whose own log-probabilities of that response are returned.
    """
    from support.reference import Reference

    reference, prompt, found = Reference(senior, junior), [5, 6, 7, 8], []
    for is_senior, schedule in ((True, "solo"), (False, "junior")):
        tandem = json.dumps({"seed": 3, "schedule": schedule})
        body = {"model": model, "prompt": prompt, "max_tokens": 24, "logprobs": 0}
        more = {"return_token_ids": True, "ignore_eos": True, "vllm_xargs": {"tandem": tandem}}
        status, answer = server.post("/v1/completions", body | more)
        assert status == 200, answer
        (choice,) = answer["choices"]
        logits = reference.both(prompt, choice["token_ids"])[is_senior]
        own = logits.log_softmax(-1).gather(1, torch.tensor(choice["token_ids"])[:, None])[:, 0]
        found.append((choice["logprobs"]["token_logprobs"], own.tolist()))
    return found
