"""Every touch on vLLM's internals, by area: what, which versions, why, and when it can go.

Nothing here changes an engine that does not ask for tandem. The entry point
(:mod:`tandem_plugin.engine.plugin`) puts some in place in every process of vLLM, and an engine that
asks for tandem puts the others there.
"""
