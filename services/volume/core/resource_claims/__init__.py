"""Decides which resource claims the drivers of this node prepare, and when they are unprepared (node.md 4.16)."""
