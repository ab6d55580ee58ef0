"""P: a producer's rows are staged on the attempt's own branch, or rolled back. Producer side."""
