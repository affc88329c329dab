"""What every command writes: lines to a terminal, a pipe or a file."""
