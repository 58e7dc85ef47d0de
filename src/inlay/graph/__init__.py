"""Neural networks: read from ONNX, planned by cost with a proof of optimality, compiled, and run.

Data flows through these values; each is built from the one before:

    Network     nodes of ONNX with static dims, simplified                                   network, onnx, passes
    OpGraph     primitives, views of memory, and references, which NumPy computes            op_graph, lowering
    Problem     groups of operations, and the candidates of each with their costs            planner.problem, costs
    Plan        the cheapest program, the proof of that, and plans to compare it with        plan, report
    Program     steps in concrete formats, and the buffers that they read and write          program
    Session     programs for each shape of the inputs, bound to memory, with packed weights  session, runtime
    TorchModule sessions for the parts of a module of PyTorch                                torch
    Profile     measured times of a program's steps beside predicted ones                    profiling
    Refinement  the plan by new times of the steps that were not as predicted                replanning, refinement

`open_network` has models with open dims, `planning` all steps from a `Network` to a `PlannedProgram`, and `background`
the pauses of planning beside runs. `precision` has the data types in which a plan may store tensors, `layer_errors` the
errors of that, and `states` the inputs that a session keeps between the steps of decoding. `decoder_inputs` has the
roles of all inputs of a decoder, and `decoding` its steps.

A plan can be saved with its packed weights, and a session started from the file                 saved_plans

Terms:

    primitive     an operation that an engine computes (oneDNN, `dnnl::primitive`)
    reference     an operator of ONNX without a primitive, which NumPy computes in plain formats
    plain         of a format: dense and row-major
    reorder       the copy of a tensor into another format (oneDNN, `dnnl::reorder`)
    post-operation  an operation that a primitive applies to its result (oneDNN, `dnnl::post_ops`)
"""
