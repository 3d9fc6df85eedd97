"""``python -m sim VERB [NAME=value …]``: what ``make`` calls."""

import sys

from sim.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
