"""Post-processing of released values: estimation that cannot leak, because it never sees anything else.

An import contract keeps data, engines and sessions out of this package.
"""

__all__: list[str] = []
