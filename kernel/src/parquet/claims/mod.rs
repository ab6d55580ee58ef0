//! Compares what a Parquet file claims about its values with the values, in the same pass that digests them.
//!
//! A claim is a statistic, a count, an entry of a page index, a bloom filter or another fact that a file states about
//! its own values (docs/parquet.md). It is not the claim of a workload. Readers skip pages and row groups that
//! claims rule out. If a claim is wrong, a filtered read shows other rows than the full scan that was digested.

mod annotated_values;
mod bloom;
pub mod check;
pub mod compare;
mod dictionary;
#[cfg(test)]
mod edge_tests;
mod levels;
pub mod measure;
pub mod metadata;
mod page_index;
pub mod pages;
mod partial_statistics;
mod plain_values;
pub mod row_indices;
mod sort_order;
#[cfg(test)]
mod tests;
mod value_summary;
mod value_widths;
