//! Locates wrong rows: finds which rows differ between the intended and the staged side.

mod hash;
pub mod passes;
pub mod place;
pub mod spool;
mod tally;
