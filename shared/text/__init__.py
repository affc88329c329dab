"""Values as text that people read, or that JSON can hold. Pure."""
