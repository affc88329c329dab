"""What bootstrap decides without touching the machine."""
