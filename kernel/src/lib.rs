//! Canonical rows and keyed multiset digests over Arrow data (spec/canonical.md, spec/digest.md).

mod bind;
mod column;
pub mod digest;
pub mod element;
pub mod error;
#[cfg(feature = "python")]
mod python;
mod rows;
pub mod schema;
pub mod sha256;
mod strings;
mod text;
mod unicode14;
pub mod variant;
