"""View metadata documents and their updates."""
