"""The command line: one file per command. Heavy modules are imported only when a command runs."""

__all__: list[str] = []
