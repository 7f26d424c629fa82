"""Methods as published in papers, repaired where they were broken: to compare with and to build on."""

__all__: list[str] = []
