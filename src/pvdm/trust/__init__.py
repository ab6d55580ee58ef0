"""Keys, signed proofs and the transparency log: what makes a verdict worth believing. Steward side only."""
