"""`python -m inlay`: the command line, for when the command `inlay` is not on the path."""

import sys

from inlay.cli import main

if __name__ == "__main__":
    sys.exit(main())
