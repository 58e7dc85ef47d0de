"""The reference engine: every primitive in NumPy, as the specification writes it.

Arrays are logical and of f64: an argument is unpacked from whatever format it has, the formula is computed, and the
result is converted to the type of the destination once and reordered into its format, padding included. So any format
works, nothing hangs on the processor, and results are what others are compared with. It is slow.

    engine = make_engine()
    implementation = engine.create(operation)
    implementation.bind(memories)()

Its rooms in the order that data flows: `formats`, what `any` becomes; `values`, arguments as arrays and back; `table`,
the function of each primitive; `post_ops`, what follows it; `engine`, which puts these together. All others hold
formulas: functions of f64 arrays that are named as in the specification and know nothing of memory. `taps` is the
geometry that convolution and pooling share.
"""

from inlay.engines.reference.engine import ReferenceEngine

__all__ = ["ReferenceEngine", "make_engine"]


def make_engine() -> ReferenceEngine:
    """The engine, as `primitives.engines` asks for it."""
    return ReferenceEngine()
