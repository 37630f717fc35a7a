"""Element by element: one tensor, or several with broadcasting."""

from pteron.families.elementwise import binary, unary
