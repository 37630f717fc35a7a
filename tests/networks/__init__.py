"""Whole architectures, compact and with random weights, for tests of whole models."""
