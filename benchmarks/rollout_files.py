"""How ``tandem view`` and ``tandem replay`` take the files of a training run, by size.

``python benchmarks/rollout_files.py``: writes a folder of step dumps as verl leaves them, of
made-up words under the word schedule, and measures seconds and memory of each command, and the
page's size.
Small by default; the size of a real run is ``--steps 250 --problems 16 --samples 8 --tokens 1500``,
32,000 responses.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

__all__ = ["main", "measured", "write_dumps"]

WORDS = 20_000
"""Words of the vocabulary, of which common ones are drawn more often: 1/rank."""
_TANDEM = [sys.executable, "-c", "from tandem_plugin.cli import main; main()"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the dumps, measure each command on them, and print one JSON object."""
    options = _parser().parse_args(arguments)
    out = options.out.resolve()
    shutil.rmtree(out / "dumps", ignore_errors=True)
    size = (options.steps, options.problems, options.samples, options.tokens)
    vocabulary = write_dumps(out / "dumps", *size)
    files = sorted((out / "dumps").glob("*.jsonl"), key=lambda file: int(file.stem))
    given = {"steps": size[0], "problems": size[1], "samples": size[2], "tokens": size[3]}
    found: dict[str, Any] = {
        **given,
        "bytes": sum(file.stat().st_size for file in files),
        "load": os.getloadavg()[0],
    }
    tokenizer = ("--tokenizer", str(vocabulary), "--json")
    page = out / "page.html"
    found["view"] = measured("view", str(out / "dumps"), *tokenizer, "--out", str(page))
    for name, place in (("replay of one step", files[0]), ("replay", out / "dumps")):
        found[name] = measured("replay", str(place), *tokenizer)
    found["page opens in milliseconds"] = opening(page, 5)
    Console().print_json(json.dumps(found))
    return 0


def write_dumps(folder: Path, steps: int, problems: int, samples: int, tokens: int) -> Path:
    """A dump a step, ``<step>.jsonl``, and the vocabulary that they were written in; its file.

    problems: different ones at every step, but that the first half comes again at all steps.
    """
    from tandem_plugin import TandemConfig, TandemRules, Vocabulary

    folder.mkdir(parents=True)
    rng = random.Random(0)
    vocabulary = folder.parent / "vocab.json"
    words = _words(rng)
    vocabulary.write_text(json.dumps({word: i for i, word in enumerate(words)}), encoding="utf-8")
    rule = TandemRules(TandemConfig(), Vocabulary.from_path(vocabulary)).default
    texts = [word.replace("Ġ", " ").replace("Ċ", "\n") for word in words]
    drawn = np.random.default_rng(0)
    cumulative = np.cumsum(1 / np.arange(1, len(words) + 1))
    for step in range(1, steps + 1):
        with (folder / f"{step}.jsonl").open("w", encoding="utf-8") as file:
            for problem in range(problems):
                again = problem < problems // 2
                number = problem if again else step * problems + problem
                asked = f"user\nWhat is {number} + {number}?\nassistant\n"
                draws = drawn.random((samples, tokens)) * cumulative[-1]
                ids = np.searchsorted(cumulative, draws).tolist()
                seeds = [rng.getrandbits(60) for _ in ids]
                authors = rule.replay_batch(ids, seeds)
                for response, seed, authorship in zip(ids, seeds, authors, strict=True):
                    right = rng.random() < 0.3 + 0.4 * step / steps
                    row = {
                        "input": asked,
                        "output": "".join(texts[i] for i in response),
                        "gts": str(2 * number),
                        "score": float(right),
                        "step": step,
                        "response_ids": response,
                        "authorship": authorship.tolist(),
                        "tandem_seed": seed,
                        "tandem_fingerprint": rule.fingerprint,
                        "tandem_schedule": rule.settings(),
                        "tandem_segments": [[seed, 0, tokens]],
                    }
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return vocabulary


def measured(*command: str) -> dict[str, Any]:
    """Seconds and highest memory of one command in a process of its own, and what it said."""
    began = time.perf_counter()
    process = subprocess.Popen([*_TANDEM, *command], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {said[:500]!r}")
    return {
        "seconds": round(time.perf_counter() - began, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "megabytes": round(used.ru_maxrss / 1024),
        "result": {k: v for k, v in json.loads(said).items() if isinstance(v, int | float)},
    }


def opening(page: Path, times: int) -> list[int] | None:
    """How long a real browser takes until it shows the first responses; None where there is none.

    The page marks that moment itself, from the beginning of the navigation.
    """
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if not browser or not driver:
        return None
    from selenium import webdriver
    from selenium.webdriver.support.ui import WebDriverWait

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"):
        options.add_argument(flag)
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    mark = "return performance.getEntriesByName('shown').map(mark => mark.startTime)"
    try:
        taken = []
        for _ in range(times):
            window.get(page.as_uri())
            (shown,) = WebDriverWait(window, 60).until(lambda w: w.execute_script(mark))
            taken.append(round(shown))
        return taken
    finally:
        window.quit()


def _words(rng: random.Random) -> list[str]:
    """Pieces of a byte-level vocabulary: words with a space, parts of words, signs, line ends."""
    letters = "etaoinshrdlucmfwygpbvk"
    made: dict[str, None] = dict.fromkeys([".", "Ċ", ",", "ĊĊ", "Ġ=", "Ġ+", "Ġ1", "2", "}", "\\"])
    while len(made) < WORDS:
        space = "Ġ" if rng.random() < 0.6 else ""
        made[space + "".join(rng.choices(letters, k=rng.randint(1, 8)))] = None
    first, *rest = made
    return [first, *rest]


def _sizes() -> Iterator[tuple[str, int, str]]:
    yield "steps", 20, "files, one a training step"
    yield "problems", 8, "problems a step"
    yield "samples", 4, "responses to each problem"
    yield "tokens", 500, "tokens of each response"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Files of rollouts: seconds, memory, page size.")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/rollout_files"), help="where to work"
    )
    for name, default, what in _sizes():
        parser.add_argument(f"--{name}", type=int, default=default, help=what)
    return parser


if __name__ == "__main__":
    sys.exit(main())
