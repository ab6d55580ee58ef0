//! Checks before a file is decoded: its limits, and that every reader reads the same rows.

mod annotations;
pub mod file_columns;
pub mod footer_limits;
mod page_limits;
pub mod published;
pub mod unambiguous;
