"""Whatever a descriptor is asked, it answers as the real oneDNN does: both are asked, and the answers compared.

`operations` says what is asked and how each side is asked; `differences` is the table of what Inlay answers otherwise
on purpose, each with its reason and the rule that recognizes it; `tally` runs cases, explains or reports what differs,
and counts. Cases are those of `inlay.testing`. `make test` runs some thousands, `make parity` a hundred thousand
against each of two libraries: 3.2 from the wheel `onednn-cpu-gomp`, and 3.13 from `onednn`, whose every answer counts.
"""
