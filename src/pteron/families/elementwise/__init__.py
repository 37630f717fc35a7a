"""Element by element: one tensor, or several with broadcasting."""

from pteron.families.elementwise import activations, binary, unary
