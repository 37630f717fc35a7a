"""Ways to change an input: where its format has fields, and anywhere."""
