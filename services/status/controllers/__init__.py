"""What status keeps between events: node, lease, pods, events and reviews."""
