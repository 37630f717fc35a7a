"""Element by element: one tensor, or several with broadcasting."""
