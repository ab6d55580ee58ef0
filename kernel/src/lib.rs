//! Canonical rows and keyed multiset digests over Arrow data (spec/canonical.md, spec/digest.md).

mod annotations;
mod as_stored;
mod batches;
mod bind;
mod bound;
mod bucket;
mod claims;
mod column;
mod columns;
mod deltas;
pub mod digest;
pub mod element;
pub mod error;
mod facts;
mod headers;
mod indexed;
#[cfg(test)]
mod indexed_tests;
pub mod locate;
mod locate_hash;
mod locate_spool;
mod locate_tally;
mod names;
mod narrow;
mod one_reading;
mod opened;
pub mod parquet_file;
mod published_annotations;
mod published_arrow_schema;
mod published_footer;
mod published_names;
#[cfg(feature = "python")]
mod python;
mod required_fields;
mod resolve;
pub mod rewrite;
mod rows;
pub mod schema;
pub mod sha256;
mod strings;
mod text;
mod thrift;
mod unclaimed;
#[cfg(test)]
mod unclaimed_tests;
mod unicode14;
pub mod variant;
mod wide_deltas;
mod zstd_frames;
