"""Defines the error that ends a figure: one line with the figure and the reason."""


class BenchError(Exception):
    """A sample could not be taken; the text is one line."""
