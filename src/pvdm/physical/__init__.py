"""Stages a producer's rows on the attempt's branch, with Spark or without. Producer side."""
