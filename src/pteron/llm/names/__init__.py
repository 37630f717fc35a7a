"""Names of language models -> programs on this machine, built from checkpoints where needed."""
