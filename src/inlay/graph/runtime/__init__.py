"""Execution of a `Program`: memory planning, compilation, runs.

Modules, in the order in which data flows through them:

    plain            the program of a graph without a planner, the baseline
    arena            allocation and offset of each buffer: memory planning
    checking         validation of a program before it is compiled
    prepared_steps   values: a step compiled except for addresses, and the memory that it is bound to
    reference_steps  compilation of steps that ONNX Runtime or NumPy computes
    compiling        implementations of steps, and constants packed in their formats
    guards           the buffers that a run checks for NaN, infinities and very large numbers
    instance         a compiled program bound to memory of its own
    adaptive_team    the number of threads of the next run
    worker_affinity  processors of the threads of a team, other than the caller's
    step_runs        runs step by step: every tensor, the time of each step
    call_values      arguments and results of a session that is called with arrays
    program_session  `ProgramSession`, which compiles and runs a program from any number of threads

Terms:

    buffer        one tensor in one format; it has memory of its own or is stored in the bytes of another, its base (as
                  `numpy.ndarray.base`)
    allocation    the memory of a buffer that has its own, with all buffers that are stored in it
    arena         one piece of memory that allocations share over time (Pisarchyk and Lee 2020, "Efficient memory
                  management for deep neural net inference")
    live          of an allocation at a step: written before or there, and read there or later
    external      of an input's allocation: outside of the arena, so that steps may read the caller's memory
    scratchpad    temporary memory of a primitive (oneDNN, `dnnl::scratchpad_mode`)
    guard         a buffer whose elements a run checks, so that kernels that may lose NaN and infinities can be used
                  (see `inlay.graph.passes.range_guards`)
    exact         of kernels: they propagate NaN and infinities as ONNX defines
"""
