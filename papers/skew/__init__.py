"""Krichene et al., "Multi-Task Differential Privacy Under Distribution Skew" (2023), and what goes past it."""
