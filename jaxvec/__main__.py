"""`python -m jaxvec` is the command `jaxvec`."""

import sys

from jaxvec.cli import main

if __name__ == "__main__":
    sys.exit(main())
