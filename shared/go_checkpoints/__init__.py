"""Has what the Go kubelet's checkpoint files have in common (node.md 4.14): Go's types with their JSON and their dump,
checksums, and what is wrong with a file."""
