"""What a checkout needs around the agent, which never imports it: first run, clean-up, test images, checks."""
