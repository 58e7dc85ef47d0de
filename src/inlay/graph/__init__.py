"""Networks: read from ONNX, formats chosen by cost and proof, compiled to a flat list of calls, run.

    Network     nodes of ONNX with static dims, as `load` reads and simplifies them          network
    OpGraph     operations of `inlay.primitives`, views and what only NumPy computes         op_graph
    Problem     groups of operations, with the candidates of each                            planner.problem
    Program     steps with every format chosen, and the buffers that they read and write     program
    Session     the program on memory, with weights in their formats                         runtime.session

Each is a plain value that the next is made of. A `Plan` is a program with the proof of it (`plan`, `report`).
"""
