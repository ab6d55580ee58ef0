"""The experiments of the paper and of this project, and the demo. May import every package but `cli`."""
