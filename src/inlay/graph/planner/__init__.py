"""The planner: chooses a kernel for each group and formats for each tensor, at the least cost, with the proof.

    formats        descriptors by number
    groups         operations that one kernel may compute together
    prices         costs of kernels and reorders, cached by these numbers
    domains        formats that each tensor may have, and those that each operation is tried in
    candidates     kernels of each group in these formats: fused or not, in place or not
    elimination    the exact minimum of a sum of cost tables
    problem        groups, candidates, domains and prices, and the same as cost tables of tensors' states
    choosing       the cheapest plan, its bound, its cost without a reorder, and plans to compare it with
    emission       the program of a plan: buffers, reorders, steps

Engines are asked while a problem is made, never afterwards: then every kernel and reorder has its price.
"""
