"""How formats are chosen: from candidates of groups to the cheapest program, with the proof.

    Problem       groups, their candidates, what reorders cost            problem
    Settled       one candidate for each group, and what follows          settled
    State         of a tensor: the format produced, the formats kept      states
    Factor        what candidates and reorders cost by states             tables
    Chosen        the minimum, and what it would be without a reorder     choosing
    comparisons   all plain, greedy, each uniform format                  comparing
    Program       steps in order, buffers in their places                 buffers, placing, emission

Nothing here asks an engine: everything has its price when a problem is made.
"""
