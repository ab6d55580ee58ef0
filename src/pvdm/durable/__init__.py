"""D: workloads from their opening to their outcome, taken up again where a run ended. Producer side."""
