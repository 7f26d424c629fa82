"""Reproductions of papers and studies around them, with the public API only."""
