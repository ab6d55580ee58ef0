//! Refuses bounds of fixed-length values in a published footer that are longer or shorter than a value. PyArrow reads
//! as many bytes of a bound as a value has.

use crate::error::Result;
use crate::parquet::claims::check::Claims;
use crate::parquet::claims::compare::{ClaimPlace, STATISTICS};
use crate::parquet::claims::metadata::{self, Statistics, read_page_headers};
use crate::parquet::claims::page_index;
use crate::parquet::format::pages::{DATA_PAGE, DATA_PAGE_V2};
use parquet::basic::Type as Physical;
use parquet::file::metadata::ColumnChunkMetaData;

impl Claims<'_> {
    /// Refuses bounds of FIXED_LEN_BYTE_ARRAY columns that are longer or shorter than a value.
    pub fn require_widths(&self) -> Result<()> {
        for group in 0..self.metadata.num_row_groups() {
            for (column, declared) in self.chunks(group) {
                if column.column_type() == Physical::FIXED_LEN_BYTE_ARRAY {
                    self.require_chunk_widths(column, declared).map_err(|fault| fault.in_group(group))?;
                }
            }
        }
        Ok(())
    }

    fn require_chunk_widths(&self, column: &ColumnChunkMetaData, declared: &metadata::ChunkMetadata<'_>) -> Result<()> {
        let path = column.column_path().string();
        let width = usize::try_from(column.column_descr().type_length()).unwrap_or(0);
        let place = ClaimPlace { code: STATISTICS, column: &path, page: None };
        require_statistics(place, &declared.statistics, width)?;
        let pages = read_page_headers(self.data, column).unwrap_or_default();
        let pages = pages.iter().filter(|page| matches!(page.kind, DATA_PAGE | DATA_PAGE_V2));
        let mut count = 0;
        for (at, page) in pages.enumerate() {
            require_statistics(ClaimPlace { page: Some(at), ..place }, &page.statistics, width)?;
            count = at + 1;
        }
        let index = self.auxiliary_ranges(&path, declared)?.column_index;
        let Some(found) = index.and_then(|range| metadata::read_column_index(&self.data[range], count)) else {
            return Ok(());
        };
        for (claim, bounds) in [("min_values", &found.least), ("max_values", &found.greatest)] {
            for (at, bound) in bounds.iter().enumerate() {
                // Writers truncate long values in a column index, and readers compare truncated bounds byte by byte.
                let is_cut = width > INDEX_CUT_BYTES && bound.len() < width;
                if !is_cut && !found.null_pages.get(at).is_some_and(|null| *null) {
                    let place = ClaimPlace { page: Some(at), ..page_index::index_place(&path) };
                    require_width(place, claim, bound, width)?;
                }
            }
        }
        Ok(())
    }
}

/// Writers truncate the bounds of a column index only if the values have more bytes than this.
const INDEX_CUT_BYTES: usize = 16;

fn require_statistics(place: ClaimPlace<'_>, declared: &Statistics<'_>, width: usize) -> Result<()> {
    for (claim, bounds) in [("deprecated min and max", &declared.old), ("min_value and max_value", &declared.bounds)] {
        bounds.iter().flatten().try_for_each(|bound| require_width(place, claim, bound, width))?;
    }
    Ok(())
}

fn require_width(place: ClaimPlace<'_>, claim: &str, bound: &[u8], width: usize) -> Result<()> {
    if bound.len() == width {
        return Ok(());
    }
    Err(place.fault(claim, format!("{width} bytes"), bound.len()))
}
