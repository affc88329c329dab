"""Contains what a checkout needs and the agent never imports: first run, clean-up, test images, checks."""
