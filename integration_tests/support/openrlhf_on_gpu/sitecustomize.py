"""OpenRLHF on a GPU: every process of a run imports the modules that ``TANDEM_TEST_HOOKS`` names.

Python imports this before anything else in every process whose PYTHONPATH holds this folder.
"""

import os

for _hook in os.environ.get("TANDEM_TEST_HOOKS", "").split():
    __import__(_hook)
