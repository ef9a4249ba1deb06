"""The site's own search, in a real browser, asked with a user's words."""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.browser import chromium

ROOT = Path(__file__).parents[2]
BUILDER = ROOT / ".venv-docs" / "bin" / "python"
pytestmark = pytest.mark.timeout(300)

TASKS = {
    "use-my-own-reward": ["own reward", "custom reward", "reward model", "reward function"],
    "train-on-a-task-without-gold-answers": ["no gold answer", "task without answers"],
    "use-my-own-dataset": ["my own data", "custom dataset"],
    "write-my-own-schedule": ["own schedule", "write a plugin"],
    "use-my-own-model-or-a-smaller-junior": ["own model", "smaller junior"],
    "use-several-gpus-nodes-slurm": ["multi-gpu", "several gpus", "slurm", "multi-node"],
    "run-in-docker": ["docker", "container image"],
    "resume-a-run-after-a-crash-or-a-stop": ["resume", "continue after crash"],
    "log-to-weights-biases-or-tensorboard": ["wandb", "tensorboard"],
    "train-with-lora": ["lora"],
    "train-on-images-with-a-vision-language-model": ["images", "vision language model"],
    "evaluate-a-checkpoint": ["evaluate", "evaluate a checkpoint"],
    "serve-a-team": ["serve", "serve a team"],
    "migrate-from-plain-grpo": ["migrate", "plain grpo"],
    "the-share-is-wrong-senior_share-too-low-or-too-high": ["senior_share too low", "share"],
    "out-of-memory-cuda-oom": ["out of memory", "cuda oom"],
}
"""The sections of the page of tasks, and what a user types who has that task."""
OTHERS = {
    "/serving/": "inference server",
    "/serving/#as-a-server": "openai server",
    "/first-run/#the-reward-is-flat": "reward is flat",
    "/settings/#a-quantised-junior": "quantise the junior",
    "/troubleshooting/#junior-tokenizer-differs": "junior-tokenizer-differs",
    "/grading/": "grading",
}
QUERIES = [
    *((query, f"/tasks/#{section}", 1) for section, queries in TASKS.items() for query in queries),
    *((query, place, 3) for place, query in OTHERS.items()),
]
"""What is typed, the section that is meant, and among how many pages of results it must be."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built site."""
    python = str(BUILDER) if BUILDER.exists() else sys.executable
    if python == sys.executable and importlib.util.find_spec("mkdocs") is None:
        pytest.skip("no mkdocs here: `make docs` makes an environment that has it")
    folder = tmp_path_factory.mktemp("site")
    command = [python, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env={"NO_MKDOCS_2_WARNING": "1"})
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *message: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def searched(site: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Search for a text: of each result, the addresses of its page and of its sections."""
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        browser.get(f"{site}/")

        def search(query: str) -> list[list[str]]:
            browser.execute_script(TYPE, query)
            deadline, before = time.monotonic() + 5, "[]"
            while time.monotonic() < deadline:  # until two looks see the same results
                time.sleep(0.25)
                now = json.dumps(browser.execute_script(RESULTS))
                if now == before != "[]":
                    break
                before = now
            return json.loads(before)

        yield search


TYPE = """
    const field = document.querySelector('[data-md-component=search-query]');
    document.querySelector('.md-search-result__list').replaceChildren();
    field.focus();
    field.value = arguments[0];
    field.dispatchEvent(new KeyboardEvent('keyup', { bubbles: true }));
"""
RESULTS = r"""
    return [...document.querySelectorAll('.md-search-result__list > li')].map((result) => (
      [...result.querySelectorAll('a')].map((link) => {
        const address = new URL(link.href);
        return address.pathname + address.hash;
      })));
"""


@pytest.mark.parametrize(("query", "place", "most"), QUERIES, ids=[row[0] for row in QUERIES])
def test_page_that_a_user_means_is_among_the_first_results(
    searched: Any, query: str, place: str, most: int
):
    results = searched(query)[:most]
    assert any(place in addresses for addresses in results), results


def test_search_of_a_word_that_no_page_has_finds_nothing(searched: Any):
    assert searched("xylophone") == []


def test_every_task_of_the_page_is_asked_for():
    page = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    assert page.count("\n## ") == len(TASKS) == 16
    assert len(QUERIES) >= 30
