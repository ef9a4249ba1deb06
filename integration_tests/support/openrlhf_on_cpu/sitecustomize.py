"""OpenRLHF without a GPU, and the hooks of ``TANDEM_TEST_HOOKS``.

Python imports this before anything else in every process whose PYTHONPATH holds this folder.
"""

import os

import tandem_openrlhf.on_cpu  # noqa: F401

for _hook in os.environ.get("TANDEM_TEST_HOOKS", "").split():
    __import__(_hook)
