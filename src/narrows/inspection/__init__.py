"""Pictures of what attention sees: patterns of families and their peers, counted and drawn without the square."""
