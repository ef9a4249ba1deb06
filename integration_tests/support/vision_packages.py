"""Where torchvision is, without which no processor of images runs.

The package index has builds for CUDA alone. Beside a CPU build of torch their Python code is all
that image processing needs, once two files that register compiled operations are empty.
``constraints/install.py`` puts such a copy beside an environment's packages, where only tests look:
other programs on a machine without a GPU run better without it.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

COPY = Path(os.environ.get("TANDEM_TEST_TORCHVISION", Path(sys.prefix) / "torchvision"))


def offer_torchvision() -> bool:
    """Whether there is a torchvision; let this process, and those it starts, import the copy."""
    if find_spec("torchvision") is not None:
        return True
    if not (COPY / "torchvision" / "__init__.py").is_file():
        return False
    sys.path.append(str(COPY))
    path = [os.environ.get("PYTHONPATH"), str(COPY)]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return True
