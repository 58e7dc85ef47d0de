"""Inlay as an engine, in machine code that it generates: reorders, and the kernels of `engine.KERNELS`.

    get_engine("inlay").create(reorder)                       compiled between layouts, converted if sparse
    get_engine("inlay").with_threads_of(onednn).create(conv)  a Winograd convolution on the threads of oneDNN

The modules in the order in which data flows:

    team_code               machine code of one thread of a team: its part of the work, addresses in the table
    winograd_tables         the matrices of F(4x4, 3x3), and the table of arguments of the machine code
    winograd_code           generation of the machine code as LLVM IR, and the format of its weights
    winograd_convolution    a convolution: supported operations, schedule, scratch memory, calls
    serial_team             the calling thread as a team, for engines that lend no threads
    table_lookup            functions of 8-bit integers by a table
    dynamic_quantization    quantization to u8 by the range of the elements: machine code and calls
    cache_write             copies of rows into states of decoding, at a position that each call reads
    matvec_post_ops         post-operations of products of few rows: functions, sums and products with a second operand
    matvec_rounding         a source that is rounded to 8 bits, and its products with integers of 4 bits
    matvec_code             products of few rows: generation of the machine code, and the format of integer weights
    matvec                  a product of few rows: supported operations, the table of its arguments, calls
    row_batch_code          batches of products of few rows with matrices as they are: generation of the machine code
    row_batch               such a batch: supported operations, the table of its arguments, calls
    engine                  reorders, `KERNELS`, and `InlayEngine`

Glossary (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2015):

    F(4x4, 3x3)         the algorithm that computes 4x4 results of a 3x3 kernel with 36 multiplications
    tile                6x6 pixels of the source, from which 4x4 results are computed; tiles overlap by 2 pixels
    V, U, M             transformed pixels, transformed weights, and their products: 36 matrices of each
    block               the tiles that are transformed and multiplied together
    panel               the columns of the weights that one micro-kernel multiplies
    group               panels of destination channels that one work item computes
    micro-kernel        the innermost product, whose results stay in vector registers (Goto and van de Geijn,
                        "Anatomy of high-performance matrix multiplication", 2008)
    thread team         the OpenMP threads of another engine, on which the convolution runs
"""

from inlay.engines.inlay.engine import InlayEngine
from inlay.engines.inlay.winograd_code import create_weights_transform, is_winograd_weights
from inlay.engines.inlay.winograd_convolution import WinogradConvolution, create_winograd_convolution

__all__ = [
    "InlayEngine",
    "WinogradConvolution",
    "create_weights_transform",
    "create_winograd_convolution",
    "is_winograd_weights",
    "make_engine",
]


def make_engine() -> InlayEngine:
    """Create the engine, without threads of another engine; the registry in `primitives.engine` calls this function."""
    return InlayEngine()
