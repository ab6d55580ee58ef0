//! Canonical rows: Arrow arrays bound to target types, and the bytes of their cells (spec/canonical.md).

pub mod batch_column;
pub mod bind;
mod cells;
mod column;
mod floats;
pub mod rows;
pub mod schema;
mod strings;
mod text;
mod unicode14;
mod variant;
