"""The reorder compiler: moving a tensor from one layout to another.

It works on descriptors and addresses and knows nothing of buffers. The stages, in the order of the data flow:

    problem     two layouts and types, stripped of what changes no byte (attributes, computation: what is computed)
    nest        loops over the digits that both layouts share, with guards for padding
    schedule    which bits of which loops make the register tile, and the order of the rest (walk)
    network     the exchanges between registers that turn source order into destination order
    kernel      what is machine code, and the table of numbers it reads
    planning    schedule, kernel and table together, for the level of memory that the tensors occupy (memory_levels: the
                machine model of this process; panels: through a buffer, where rows of the destination begin anywhere)
    emit        LLVM IR: of walks and tiles (emit_tile, emit_edge, emit_mask), of attributes (emit_values,
                emit_chance), of panels (emit_panels, buffer_pool), in the words of lines (ir), registers (lanes,
                elements) and numbers (conversion, bf16, small_floats)
    target      machine code (linking: kept between processes in `inlay.cache`; loaded_code: in this process)
    bound       what time it should take, and why
    compiled    the plan with its code (machine_code) and its calls (computed, operands: with values of attributes;
                compensated: with sums behind int8 weights; threads: split over processors; processors: how many;
                team_watch: whether they run; trial: one thread or several, ordinary or streaming stores)

`reference` does the same coordinate by coordinate and shares no code with the others.
"""

from inlay.reordering.compiled import CompiledReorder, compile_reorder

__all__ = ["CompiledReorder", "compile_reorder"]
