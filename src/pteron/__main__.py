"""python -m pteron"""

import sys

from pteron.cli import main

if __name__ == "__main__":
    sys.exit(main())
