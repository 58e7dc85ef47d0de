"""The reorder compiler: moves a tensor from one memory layout to another with machine code made for the pair.

The package works on descriptors and addresses; it allocates no tensors. `compile_reorder(src, dst, attributes)` returns
a `CompiledReorder`, whose `run` can be called any number of times. The compiler is imported at the first use of one of
these names, so that other code can import one of its modules alone. The modules, in the order of the data flow:

    attributes       scales, zero points, sum and rounding mode; checks and converts the values passed to a call
    requirements     checks of the descriptors of a reorder, and of the extras that it computes
    problem          the normalized problem: two layouts and types, and the formula to compute on each element
    instructions     the instructions of a processor: conversions, permutations, shuffles
    nest             the loop nest over the digits that both layouts share, with guards for padding
    network          the shuffle network: register exchanges that turn source order into destination order
    loop_order       the order of the loops around a register tile, and the prefetch distance
    schedule         the register tile: which bits of which loops it covers, its network, and the loops around it
    kernel           the split of a schedule into a kernel (becomes code) and a table of numbers (stays data)
    ir               a writer of LLVM IR as text, and arithmetic on whole registers
    conversion       code that converts a register from one data type to another; elements in memory and in registers
    emit_access      code that loads and stores registers, in ordinary or in swizzled memory
    emit_values      code of attributes and of stochastic rounding
    emit_tile        code of one tile, and the masks of tiles at an edge
    emit             code of a kernel: the loops around tiles, and tiles at an edge
    emit_blocks      code that computes the values of quantized blocks
    block_kernel     selects the inputs of this code for a compound format
    emit_swizzles    code that moves the bytes that an XOR swizzle exchanges
    emit_team        code with which threads post work to each other and wait
    emit_sums        code that sums int8 weights
    target           the machine that code is made for; LLVM compiles the code, `inlay.cache` stores it, LLVM links it
    threads          the number of threads, and a team of worker threads
    memory_levels    the machine model of this process: cache capacities and bandwidths, measured by copying
    panels           reorders in two passes through a buffer, for destination rows that begin at any alignment
    line_split       parts of a reorder, for destinations that do not begin at a cache line
    choice           the decisions that tuning may override, and their storage between processes
    planning         schedule, kernel and table together, chosen by a cost model; a roofline estimate of the run time
    machine_code     loads the machine code of a kernel into this process
    compensation     the channel sums that follow int8 weights in memory
    compiled         the plan with its code; calls; paired trials that choose between two variants by measurement
    tuning           measures alternative plans and remembers the fastest

`reference` computes the same results one coordinate at a time and shares no code with the others; tests compare both.

Glossary:

    digit            one (extent, stride) pair of a layout. A coordinate of an axis is a mixed-radix number of digits;
                     a blocked format such as nChw16c has two digits for c (`inlay.layout`)
    tile             the elements that one call of the innermost code moves, held in registers (register tiling)
    lane             one element of a vector register. Lane bits are the bits of a lane's number, register bits those of
                     a register's number within the tile; a tile of 2^r registers of 2^l lanes has l + r bits
    exchange         two registers in, two registers out, e.g. `punpcklbw` + `punpckhbw` (Intel SDM) or `zip1` + `zip2`
                     (Arm ARM): one register bit and one lane bit change places
    deinterleave     distributes a row of k * n elements to k registers, for odd k, as RGB pixels to R, G and B (Arm's
                     `ld3`; "interleave group" in LLVM's loop vectorizer)
    guard            a bound on a sum of loop indices (an affine constraint of the polyhedral model): elements beyond it
                     are padding or outside the tensor
    value index      a sum of loop indices that selects the scale or zero point of an element; a guard without a bound
    swizzle          a permutation of offsets that XORs some of their bits into others (CuTe's `Swizzle<B,M,S>`)
    streaming store  a store that bypasses the caches (non-temporal store, `movnt*`); it writes whole cache lines
    stage            a small buffer that collects parts of lines, so that whole lines can be streamed
    panel            a piece of the destination that fits a second-level cache and is filled there before it is streamed
    prefetch distance  bytes from the address of a load to the line that is prefetched at the same time
    traversal        the side, source or destination, whose memory order the loops around the tile follow
    roofline         an estimate of the run time as the maximum of memory time and instruction time (S. Williams et al.,
                     "Roofline", CACM 2009), plus the cost of a call
    working type     f32 or f64: the type in which attributes are computed (`docs/decisions`, 0007)
    compensation     sums of int8 weights stored behind them (oneDNN: `memory_extra_desc_t`, flags 1 and 8)
    attributes       scales, zero points, sum (oneDNN: `dnnl_primitive_attr_set_scales`, `..._set_zero_points`,
                     `dnnl_post_ops_append_sum`)
"""

from typing import TYPE_CHECKING

from inlay.lazy_names import lazy_names

if TYPE_CHECKING:
    from inlay.reordering.compiled import CompiledReorder, compile_reorder

__all__ = ["CompiledReorder", "compile_reorder"]

__getattr__, __dir__ = lazy_names(__name__, dict.fromkeys(__all__, "inlay.reordering.compiled"))
