"""Canonical rows, element hashes and multiset digests. May call `pvdm.model` and `pvdm.errors`."""

from pvdm.digest.arrow import schema_from_arrow
from pvdm.digest.digester import (
    Accumulator,
    Digester,
    Engine,
    KernelMissingWarning,
    Keys,
    default_engine,
    digest,
    kernel_engine,
    reference_engine,
)
from pvdm.digest.partial import Partial, combine, combine_each
from pvdm.digest.plan import Construction, Mode, Plan, fingerprint
from pvdm.digest.probe import probe_coverage

__all__ = [
    "Accumulator",
    "Construction",
    "Digester",
    "Engine",
    "KernelMissingWarning",
    "Keys",
    "Mode",
    "Partial",
    "Plan",
    "combine",
    "combine_each",
    "default_engine",
    "digest",
    "fingerprint",
    "kernel_engine",
    "probe_coverage",
    "reference_engine",
    "schema_from_arrow",
]
