"""Table metadata documents: parts, validity, requirements and updates."""
