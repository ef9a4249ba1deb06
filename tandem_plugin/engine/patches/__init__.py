"""Every patch of vLLM's internals, by area: what, which versions, why, and when it can go.

None of them changes an engine without tandem. The entry point (:mod:`tandem_plugin.engine.plugin`)
applies some in every process of vLLM, and a tandem engine applies the others. Elsewhere are those
by which engine arguments become a configuration, in the entry point itself, and those that only the
speculative mode needs (:mod:`tandem_plugin.engine.speculative.patches`).
"""
