"""A conversation or a text -> the tokens, sampling and grammar of engine requests."""
