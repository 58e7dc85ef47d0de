"""Engines: implementations of the protocol `inlay.primitives.engine.Engine`, one package each.

    onednn       the shared library of oneDNN, called through ctypes
    inlay        machine code that Inlay generates: Winograd convolutions, reorders
    reference    NumPy, for every primitive and every format; slow

The packages do not import each other's internals. `primitives.engine` loads them by name (decision 0012). An engine
gets an `Operation` (kind, descriptors, attributes), chooses the formats that are `any`, and returns an
`Implementation`, which is bound to memories and executed.
"""
