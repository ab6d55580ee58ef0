//! Checks before a file is decoded: limits, and one meaning for every reader.

mod annotations;
pub mod file_columns;
pub mod footer_limits;
mod page_limits;
pub mod published;
pub mod unambiguous;
