"""Finds, makes, changes and removes cgroups, by files or through systemd. Decides neither names nor values."""
