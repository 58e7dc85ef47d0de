"""Independent judges of what Inlay does: they share no code with it."""
