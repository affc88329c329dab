"""How each figure is taken, by area; every module ends in the tuple of its scenarios."""
