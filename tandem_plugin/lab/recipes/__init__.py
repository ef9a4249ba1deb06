"""A training run described by one file, ``recipe.yaml``, whichever trainer does it.

:mod:`.settings` is the file; :mod:`.run` is it with every path resolved; ``verl``, ``trl``,
``openrlhf`` and ``skyrl`` each make a trainer's command of that; :mod:`.data` prepares what is
trained on; :mod:`.folder` is where a run is and which one; :mod:`.process` runs it.
"""
