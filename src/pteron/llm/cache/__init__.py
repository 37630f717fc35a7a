"""KV caches: their layout and options, the tokens that they hold, the pool of sequences."""
