"""Makes the decisions of bootstrap without touching the machine."""
