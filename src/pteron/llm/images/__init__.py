"""Images in prompts of language models: files -> pixels -> rows in place of token embeddings."""
