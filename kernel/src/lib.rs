//! Canonical rows and keyed multiset digests over Arrow data (spec/canonical.md, spec/digest.md).

pub mod canonical;
pub mod digest;
pub mod error;
pub mod hash;
pub mod locate;
pub mod parquet;
#[cfg(feature = "python")]
mod python;
