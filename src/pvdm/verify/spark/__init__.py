"""Large chunks in the Steward's own Spark application: a driver process, its workers, and what travels between."""
