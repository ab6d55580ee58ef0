"""Opens, shows and ends the workloads and attempts of producers."""
