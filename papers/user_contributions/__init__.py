"""Epasto et al., "Smoothly Bounding User Contributions in Differential Privacy" (2020), and what goes past it."""
