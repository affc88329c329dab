"""Writes the output of every command to a terminal, a pipe or a file."""
