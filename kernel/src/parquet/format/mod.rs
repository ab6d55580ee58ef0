//! Readers for single parts of the Parquet format: Thrift, pages, runs, deltas and compressed frames.

pub mod deltas;
pub mod pages;
pub mod runs;
pub mod thrift;
pub mod thrift_form;
pub mod wide_deltas;
pub mod zstd_frames;
