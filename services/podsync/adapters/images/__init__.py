"""Image pulls, the records of pulls on disk, and where registry credentials come from. Decides no policy."""
