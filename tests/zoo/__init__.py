"""Architectures with random weights, put through `pteron.compile`: scripts/models writes docs/models.md."""
