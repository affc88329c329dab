"""Answers the calls of CRI: sandboxes, containers, images, commands and their streams, and the logs."""
