"""Data that the experiments check again at every run."""
