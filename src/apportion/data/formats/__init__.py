"""File formats of tables, one module each; what a module calls `FORMAT` is found by `apportion.data.sources`."""
