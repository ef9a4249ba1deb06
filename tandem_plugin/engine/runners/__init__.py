"""One file a model runner of vLLM: how the authors of a step reach the composite model there.

V1 is bound by a logits processor (:mod:`~tandem_plugin.engine.runners.v1`). V2, by the hook
``get_model_state_cls``, is not built yet and refused at start.
"""
