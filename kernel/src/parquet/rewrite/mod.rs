//! Builds the published file: the staged page bodies under page headers, indexes and a footer that the Steward writes.
//!
//! Engines take names, offsets, statistics and hints from a footer, each in its own way. So nothing of a producer's
//! footer is published. Everything but the page bodies is written from what was measured while the pages were decoded.

pub mod elements;
mod footer;
pub mod recipe;
pub mod rewriter;
mod statistics;
mod thrift_writer;
