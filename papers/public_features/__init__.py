"""Reproduction of Krichene et al., "Private Learning with Public Features" (2024)."""
