"""python -m pteron"""

import os
import sys

# Python looks for modules in the current folder first, and there may lie a json.py that somebody downloaded.
if sys.path[:1] in ([""], [os.getcwd()]):
    del sys.path[0]

from pteron.cli import main

if __name__ == "__main__":
    sys.exit(main())
