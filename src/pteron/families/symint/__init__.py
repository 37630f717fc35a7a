"""Live integers, computed on the host."""
