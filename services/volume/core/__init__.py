"""Pure decisions of volume: the desired and the actual state of the world, and what to do about the difference."""
