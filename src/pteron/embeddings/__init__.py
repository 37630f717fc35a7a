"""Texts -> vectors, by encoders or by the hidden states of language models."""
