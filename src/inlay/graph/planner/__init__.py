"""The planner: a kernel for each group of operations and formats for each tensor, at the least cost, with a proof.

Modules, in the order in which data flows through them:

    formats        the table of formats: each descriptor has a number
    quantized_sums  sums of integers as post-operations of the product that computes one of their operands
    groups         groups: an operation, and those that its kernel may apply as post-operations
    cost_cache     costs of kernels and reorders, by the numbers of formats
    types          the data types of the arguments of an operation
    dequantization  integers that an engine has only reference kernels for become f32
    domains        the formats that each tensor may have, and the combinations that each operation is tried in
    candidates     the candidates of each group: formats, and the calls that compute it in these, fused or not
    elimination    exact minimization of a sum of cost tables
    problem        the format-assignment problem, and the same as cost tables over the states of tensors
    dominance      candidates that no cheapest plan needs, where tensors may have several types
    plan_search    the cheapest plan, its bound, its cost without a reorder, and plans to compare it with
    emission       the program of a plan: buffers, reorders, steps
    adaptation     the formats of a plan for the same operations with other dims

All costs are requested while a problem is built; the search needs no engine.

Terms:

    domain        the formats that a tensor may have (constraint programming; Dechter 2003, "Constraint Processing")
    candidate     one way to run a group: the formats that it reads and writes, and its calls
    epilogue      the element-wise operations that follow the first operation of a group
    state         of a tensor: the format in which it is produced, and the set of formats in which it is available
    factor        a table of costs by the states of a few tensors (Koller and Friedman 2009, "Probabilistic Graphical
                  Models")
    elimination   minimizing out one variable after the other (Bertele and Brioschi 1972, "Nonserial Dynamic
                  Programming"; Dechter 1999, "Bucket elimination")
    width         the most neighbors that an eliminated variable had: the exponent of the cost of elimination
    min-marginal  the least cost of all assignments in which a variable has a given state
    propagation   the greedy choice: each operation takes the formats that the engine prefers, or those that arrive
                  (oneDNN specification, "Memory format propagation")
    plain         of a format: dense and row-major
    adapted       of a plan: it has the formats of a plan for other dims
"""
