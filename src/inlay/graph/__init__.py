"""Networks: read from ONNX, formats chosen by cost and proof, compiled to a flat list of calls, run.

    Network     nodes of ONNX with static dims, as `load` reads and simplifies them          network
    OpGraph     operations of `inlay.primitives`, views and what only NumPy computes         op
    Problem     groups of operations, with the candidates of each                            planning.problem
    Program     steps with every format settled, and the buffers that they read and write    program
    Session     the program on memory, with weights in their formats                         session

Each is a plain value that the next is made of.
"""
