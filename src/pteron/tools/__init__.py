"""What people do with programs and machines: library functions that give reports, and reports as text."""
