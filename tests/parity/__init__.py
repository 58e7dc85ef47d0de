"""Comparison of descriptors with those of oneDNN.

`operations` is the table of operations, with a call of either library. `differences` is the table of intended
differences, each with its reason and the rule that recognizes it. `tally` runs cases of `inlay.testing`, classifies
differing results, and counts. `make test` runs some thousands of cases, `make parity` a hundred thousand against each
of two libraries: oneDNN 3.2 from the wheel `onednn-cpu-gomp`, and 3.13 from `onednn`.
"""
