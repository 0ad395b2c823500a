"""The command line as a module: ``python -m relfit``."""

import sys

from relfit.cli import main

if __name__ == "__main__":
    sys.exit(main())
