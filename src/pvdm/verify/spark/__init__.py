"""Verifies large chunks in the Steward's own Spark application: its driver process, its workers, and their messages."""
