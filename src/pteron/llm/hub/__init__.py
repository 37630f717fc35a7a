"""Models of a hub, such as huggingface.co: `owner/name`, `owner/name:file.gguf`, `owner/name:Q4_K_M`."""
