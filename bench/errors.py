"""What ends a figure: one line that says which and why."""


class BenchError(Exception):
    """A sample could not be taken; the text is one line."""
