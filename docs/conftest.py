"""Pages that `tests/project/test_guides.py` executes in order, commands too, are no doctest files."""

collect_ignore = ["tutorial.md", "guides", "explanations"]
