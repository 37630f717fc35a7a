"""Builds the program of a language model: a graph of nodes, its constants, a `.pte` file."""
