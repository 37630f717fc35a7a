"""Matrix products, LoRA adapters, and distances of points."""

from pteron.families.linear import distances, follow, grouped, join, lora, operators
