"""Post-processing of released values: estimation that cannot leak anything, because it sees only released values.

An import contract keeps data, engines and sessions out of this package.
"""

__all__: list[str] = []
