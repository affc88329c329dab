"""KubeletConfiguration and the command line: fields, defaults, validation, and the effective result services read."""
