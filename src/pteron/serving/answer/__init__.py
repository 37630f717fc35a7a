"""The engine's pieces -> blocks of text, reasoning and calls, and a response."""
