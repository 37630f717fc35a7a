"""The routes, one file for each API: its bodies, and the events of its streams."""
