"""How sources reaches the static pod path and its own records on disk."""
