//! Parquet files: checked, decoded, measured, and rewritten for publication.

mod arrow_fields;
pub mod batches;
mod bucket;
mod claims;
mod decode_types;
mod dictionary_columns;
#[cfg(test)]
mod dictionary_columns_tests;
mod facts;
pub mod file;
#[cfg(test)]
mod file_tests;
mod format;
mod guard;
mod names;
mod ordered_value;
mod projection;
mod request;
mod resolve;
pub mod rewrite;
mod row_counts;
mod scalars;
mod source_indices;
#[cfg(test)]
mod source_indices_tests;
