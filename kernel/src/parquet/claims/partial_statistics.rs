//! Refuses incomplete statistics in a published footer.

use crate::error::{Fault, Result};
use crate::parquet::claims::check::Claims;
use crate::parquet::claims::compare::{ClaimPlace, STATISTICS};
use crate::parquet::claims::metadata::{self, read_page_headers};
use crate::parquet::format::pages::DICTIONARY_PAGE;
use parquet::basic::Type as Physical;

const BOUND_NAMES: [&str; 2] = ["min_value", "max_value"];

impl Claims<'_> {
    /// Refuses a column whose bounds are declared for some row groups with values but not for others. DataFusion takes
    /// the declared bounds for the bounds of the whole file.
    pub fn require_all_or_no_bounds(&self) -> Result<()> {
        let leaves = self.metadata.file_metadata().schema_descr().num_columns();
        for leaf in 0..leaves {
            for (side, claim) in BOUND_NAMES.iter().enumerate() {
                self.require_all_or_none(leaf, side, claim)?;
            }
        }
        Ok(())
    }

    /// Refuses statistics without a null count, which DataFusion takes for a null count of zero. Also refuses a count
    /// of unencoded bytes for a type that may not have one.
    pub fn require_counts(&self) -> Result<()> {
        for group in 0..self.metadata.num_row_groups() {
            for (column, declared) in self.chunks(group) {
                let path = column.column_path().string();
                let place = ClaimPlace { code: STATISTICS, column: &path, page: None };
                // DataFusion takes a missing null count for zero, and then finds no null.
                let is_optional = column.column_descr().max_def_level() > 0;
                if is_optional && declared.has_statistics && declared.statistics.nulls.is_none() {
                    return Err(place.fault("null_count", "a count beside other statistics", "none").in_group(group));
                }
                // PyArrow does not open a file that declares this size for other types.
                if declared.sizes.bytes.is_some() && column.column_type() != Physical::BYTE_ARRAY {
                    let claim = "unencoded_byte_array_data_bytes";
                    return Err(place.fault(claim, "none, for a type other than byte array", "one").in_group(group));
                }
            }
        }
        Ok(())
    }

    /// Refuses a column inside lists and maps whose first data page has no values, because PyArrow takes this page for
    /// the end of the column. For other columns `require_unambiguous` refuses such a page, even if the footer of the
    /// file is not published.
    pub fn require_first_pages_with_values(&self) -> Result<()> {
        for group in 0..self.metadata.num_row_groups() {
            if self.metadata.row_group(group).num_rows() == 0 {
                continue;
            }
            for (column, _) in self.chunks(group).filter(|(column, _)| column.column_descr().max_rep_level() > 0) {
                let pages = read_page_headers(self.data, column).unwrap_or_default();
                if pages.iter().find(|page| page.kind != DICTIONARY_PAGE).is_some_and(|page| page.values == 0) {
                    let path = column.column_path().string();
                    let fault = Fault::new("parquet_ambiguous", &path, "a first page with values", "one without any");
                    return Err(fault.in_group(group));
                }
            }
        }
        Ok(())
    }

    fn require_all_or_none(&self, leaf: usize, side: usize, claim: &str) -> Result<()> {
        let mut first = None;
        for group in 0..self.metadata.num_row_groups() {
            let Some((column, declared)) = self.chunks(group).nth(leaf) else { continue };
            if !may_have_values(column.num_values(), declared) {
                continue;
            }
            // Some readers use the deprecated field if the new one is missing, others do not.
            let has_bounds = (declared.statistics.bounds[side].is_some(), declared.statistics.old[side].is_some());
            if *first.get_or_insert(has_bounds) != has_bounds {
                let path = column.column_path().string();
                let place = ClaimPlace { code: STATISTICS, column: &path, page: None };
                let fault = place.fault(claim, "bounds of every row group with values, or of none", "of some");
                return Err(fault.in_group(group));
            }
        }
        Ok(())
    }
}

/// A row group with only nulls has no bounds.
fn may_have_values(values: i64, declared: &metadata::ChunkMetadata<'_>) -> bool {
    values > 0 && declared.statistics.nulls != Some(values)
}
