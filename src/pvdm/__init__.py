"""pvdm: proof-gated publication for Apache Iceberg tables on Spark."""

__version__ = "0.1.0"
