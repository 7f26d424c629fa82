"""File formats of tables, one module each; `apportion.data.sources` finds each module's `FORMAT`."""

__all__: list[str] = []
