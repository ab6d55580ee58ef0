//! Readers for single parts of the Parquet format.

pub mod deltas;
pub mod pages;
pub mod runs;
pub mod thrift;
pub mod thrift_form;
pub mod wide_deltas;
pub mod zstd_frames;
