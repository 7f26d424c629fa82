"""The experiments of the model-protection paper; see README.md."""
