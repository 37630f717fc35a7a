"""Operators outside the delegates, run on the CPU by NumPy or by PyTorch."""
