"""Live integers, computed on the host."""

from pteron.families.symint import scalars
