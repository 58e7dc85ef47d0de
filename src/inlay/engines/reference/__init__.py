"""The reference engine: every primitive in NumPy, by the formulas of the specification.

All computations are on logical arrays of f64. Arguments are unpacked from their format and dequantized, the formula is
computed, and the result is converted once to the type of the destination and reordered to its format. The engine
therefore supports all formats on all processors, and its results are the oracle of the tests. It is slow.

    engine = make_engine()
    implementation = engine.create(operation)
    implementation.bind(memories)()

The modules in the order in which data flows:

    values               conversion of arguments to arrays of f64, and of results to memory
    spatial              formulas of convolution, deconvolution, pooling and resampling
    products             formulas of inner product and matrix multiplication
    normalization        formulas of batch, layer, group and local response normalization
    bandwidth_limited    formulas of eltwise, PReLU, softmax, shuffle, reduction, binary, concat and sum
    recurrent_cells      formulas of one cell of a recurrent network, at one time step
    recurrent            recurrent networks: layers, directions and time
    engine               the table of formulas, the choice of formats, post-operations, and `ReferenceEngine`

Glossary:

    formula              a function of f64 arrays, whose parameters and results have the names of the specification
    logical array        an array with the axes of the dims, without blocks and padding
    dequantize           (x - zero_point) * scale: the number that an integer element x represents (oneDNN,
                         "Quantization")
    quantize             y / scale + zero_point: the inverse, before rounding
    tap                  one element of the window of a convolution or pooling
    workspace            the array that a forward formula passes to its backward formula

Source: oneAPI specification, "Primitives".
"""

from inlay.engines.reference.engine import ReferenceEngine

__all__ = ["ReferenceEngine", "make_engine"]


def make_engine() -> ReferenceEngine:
    """Create the engine; the registry in `primitives.engine` calls this function."""
    return ReferenceEngine()
