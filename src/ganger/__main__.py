"""`python -m ganger` is the same as `ganger`."""

import sys

from ganger.cli import main

if __name__ == "__main__":
    sys.exit(main())
