"""OpenRLHF without a GPU, as in examples/openrlhf/on_cpu, and the hooks of ``TANDEM_TEST_HOOKS``.

Python imports this before anything else in every process whose PYTHONPATH holds this folder.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3] / "examples" / "openrlhf" / "on_cpu"))

import openrlhf_on_cpu  # noqa: F401

for _hook in os.environ.get("TANDEM_TEST_HOOKS", "").split():
    __import__(_hook)
