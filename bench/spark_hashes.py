"""Other ways to compare two tables on Spark: a fast sum of hashes, HMAC from SQL functions, a multiset difference."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BLOCK = 64  # bytes in a block of SHA-256
LIMBS = 8  # parts of 32 bits, so that Spark's 64-bit sums do not overflow
_ANSI = "spark.sql.ansi.enabled"


def sum_xxhash64(frame: DataFrame) -> int:
    """The paper's fast native hash: the sum of all rows' hashes, which may overflow."""
    from pyspark.sql import functions as f

    with _overflow_allowed(frame.sparkSession):
        found = frame.select(f.sum(f.xxhash64(*frame.columns))).collect()[0][0]
    return int(found or 0)


def sum_hmac(frame: DataFrame, key: bytes) -> int:
    """HMAC-SHA256 of every row, summed mod 2^256, with SQL functions only; one projection, all columns.

    The query's plan contains the key, so this is only for a benchmark.
    """
    from pyspark.sql import functions as f

    assert len(key) <= BLOCK
    padded = key.ljust(BLOCK, b"\0")
    inner, outer = (f.lit(bytes(byte ^ pad for byte in padded)) for pad in (0x36, 0x5C))
    row = f.encode(framed(frame.columns), "utf-8")
    hashed = f.sha2(f.concat(outer, f.unhex(f.sha2(f.concat(inner, row), 256))), 256)
    limbs = [
        f.sum(f.conv(f.substring("h", 1 + 8 * at, 8), 16, 10).cast("bigint")).alias(f"limb{at}") for at in range(LIMBS)
    ]
    sums = frame.select(hashed.alias("h")).select(*limbs).collect()[0]
    return sum(int(limb or 0) << 32 * (LIMBS - 1 - at) for at, limb in enumerate(sums)) % 2**256


def framed(columns: Sequence[str]) -> Column:
    """A row as one unambiguous text: each value with its length before it, null as a dash."""
    from pyspark.sql import functions as f

    texts = [f.col(name).cast("string") for name in columns]
    return f.concat(
        *(f.coalesce(f.concat(f.length(text).cast("string"), f.lit(":"), text), f.lit("-")) for text in texts)
    )


def differing_rows(left: DataFrame, right: DataFrame) -> int:
    """How many rows are in one frame and not in the other; duplicates count."""
    return left.exceptAll(right).count() + right.exceptAll(left).count()


@contextlib.contextmanager
def _overflow_allowed(spark: SparkSession) -> Iterator[None]:
    """Let integer sums wrap around in the block; in ANSI mode Spark raises an error instead."""
    before = spark.conf.get(_ANSI)
    spark.conf.set(_ANSI, "false")
    try:
        yield
    finally:
        spark.conf.set(_ANSI, str(before))
