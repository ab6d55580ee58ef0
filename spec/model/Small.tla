------------------------------- MODULE Small -------------------------------
(* The model with few processes, and with equal ones interchangeable: tools/check_model.py writes the constants. *)
EXTENDS Publication, TLC

Symmetries == Permutations(Chunks) \cup Permutations(Runners) \cup Permutations(Stewards)
=============================================================================
