"""The reference engine: every primitive in NumPy, as the specification writes it.

Arrays are logical and of f64: an argument is unpacked from whatever format it has, the formula is computed, and the
result is converted to the type of the destination once and reordered into its format, padding included. So any format
works, nothing hangs on the processor, and results are what others are compared with. It is slow.

    engine = make_engine()
    implementation = engine.create(operation)
    implementation.bind(memories)()

The modules in the order in which data flows:

    values               arguments as arrays of f64, and results as memory
    spatial              formulas of convolution, deconvolution, pooling and resampling
    products             of inner product and matrix multiplication
    normalization        of batch, layer, group and local response normalization
    bandwidth_limited    of eltwise, PReLU, softmax, shuffle, reduction, binary, concat and sum
    recurrent_cells      of one cell of a recurrent network
    recurrent            of recurrent networks: layers, directions, time
    engine               the table of formulas, formats, post-operations, and `ReferenceEngine`

Formulas are functions of f64 arrays that are named as in the specification; they know nothing of memory.
"""

from inlay.engines.reference.engine import ReferenceEngine

__all__ = ["ReferenceEngine", "make_engine"]


def make_engine() -> ReferenceEngine:
    """The engine, as `primitives.engine` asks for it."""
    return ReferenceEngine()
