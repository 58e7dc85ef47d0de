"""The reorder compiler: moving a tensor from one layout to another.

It works on descriptors and addresses and knows nothing of buffers. A problem becomes a plan, the plan machine code, and
that is called, on one thread or several. The modules, in the order of the data flow:

    attributes       scales, zero points, sum and rounding; the values that a call brings for them
    problem          two layouts and types, stripped of what changes no byte, and what is computed on the way
    nest             loops over the digits that both layouts share, with guards for padding
    network          the exchanges between registers that turn source order into destination order
    walk             the order of the loops around a register tile, and how far ahead the source is fetched
    schedule         which bits of which loops make the tile, with its network and the loops around it
    kernel           what is machine code, and the table of numbers it reads
    ir               LLVM IR as text, and arithmetic on whole registers
    conversion       registers of one data type converted to another; elements in memory and in registers
    emit_values      the code of attributes and of stochastic rounding
    emit_tile        the code of a tile, and its masks
    emit             the code of a kernel: the loops around tiles, and tiles at an edge
    emit_team        the code in which threads wait for one another
    emit_sums        the code that adds up int8 weights
    target           the machine that code is made for; code compiled, kept in `inlay.cache`, loaded
    threads          how many threads, and the team of workers
    memory_levels    the machine model of this process, measured with our own copies
    panels           reorders through a buffer, where rows of the destination begin anywhere
    choice           what may be decided one way or another, and decisions that are remembered
    planning         schedule, kernel and table together, for the level of memory that the tensors occupy; what time
                     the plan should take, and why
    machine_code     kernels in this process: their IR and their loaded code
    compensation     the sums behind int8 weights
    compiled         the plan with its code and its calls
    tuning           the choice that is fastest when candidates are tried

`reference` does the same coordinate by coordinate and shares no code with the others.
"""

from inlay.reordering.compiled import CompiledReorder, compile_reorder

__all__ = ["CompiledReorder", "compile_reorder"]
