"""Python imports this before anything else in every process that has this folder on PYTHONPATH.

``TANDEM_ON_CPU`` names the stand-ins for what a CPU lacks: a module to import, or
``MODULE:FUNCTION`` to call.
"""

import importlib
import os

_module, _, _function = os.environ.get("TANDEM_ON_CPU", "").partition(":")
if _module:
    _stand_ins = importlib.import_module(_module)
    if _function:
        getattr(_stand_ins, _function)()
