"""Bytes of files -> plain records. Nothing in a file is trusted."""
