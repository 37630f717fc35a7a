"""Models in PyTorch, written to load published weights, and what they hear."""
