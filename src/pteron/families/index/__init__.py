"""Slices and elements picked by index."""
