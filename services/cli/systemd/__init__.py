"""Units of systemd for the commands of the operator: what systemd has loaded, and what it would start."""
