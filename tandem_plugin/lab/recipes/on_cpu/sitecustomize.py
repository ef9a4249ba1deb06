"""Python imports this before anything else in every process that has this folder on PYTHONPATH.

It imports the adapter's stand-ins for CUDA, whose module ``TANDEM_ON_CPU`` names.
"""

import importlib
import os

if os.environ.get("TANDEM_ON_CPU"):
    importlib.import_module(os.environ["TANDEM_ON_CPU"])
