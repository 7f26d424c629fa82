"""Every figure that the project states, as a script that measures it."""
