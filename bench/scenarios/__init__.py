"""Measures each figure, by area; every module ends with the tuple of its scenarios."""
