"""How well a guest is kept apart from its neighbours: formulas, without guests or files."""
