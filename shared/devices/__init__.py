"""What device plugins of the node have registered, from their files. This agent has no device manager."""
