"""Quantised weights and activations."""
