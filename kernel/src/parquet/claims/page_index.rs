//! Compares the column index and the offset index with the pages. Readers skip the pages that an index rules out.

use crate::error::Result;
use crate::parquet::claims::compare::{
    ClaimPlace, compare_bound, compare_values, join_pages, may_declare_too_few_bytes, require_between, unencoded_bytes,
};
use crate::parquet::claims::measure::{ChunkMeasure, PageMeasure};
use crate::parquet::claims::metadata::{ColumnIndex, OffsetIndex, PageMetadata};
use crate::parquet::ordered_value::{Order, OrderedValue};

const CODE: &str = "parquet_page_index_lies";
/// Numbers of the enum `BoundaryOrder` of the format.
const ASCENDING: i64 = 1;
const DESCENDING: i64 = 2;

/// The place of a claim in a page index, for errors.
pub fn index_place(column: &str) -> ClaimPlace<'_> {
    ClaimPlace { code: CODE, column, page: None }
}

/// Refuses an offset index with wrong offsets, sizes, first rows or byte counts, or whose pages begin inside a row.
pub fn compare_offset_index(
    column: &str,
    declared: &OffsetIndex,
    headers: &[&PageMetadata<'_>],
    chunk: &ChunkMeasure,
) -> Result<()> {
    let whole_index = index_place(column);
    whole_index.require_count("pages in the offset index", declared.pages.len() as i64, headers.len() as u64)?;
    let mut row = 0;
    for (at, ([offset, size, first], (header, page))) in
        declared.pages.iter().zip(headers.iter().zip(&chunk.pages)).enumerate()
    {
        let place = ClaimPlace { page: Some(at), ..whole_index };
        place.require_count("offset", *offset, header.start as u64)?;
        place.require_count("compressed_page_size", *size, (header.end - header.start) as u64)?;
        place.require_count("first_row_index", *first, row)?;
        if !page.begins_row {
            return Err(place.fault(
                "first_row_index",
                "a page that begins with a row",
                "one that begins inside a row",
            ));
        }
        row += page.rows;
    }
    let Some(bytes) = &declared.bytes else { return Ok(()) };
    whole_index.require_count(
        "pages with unencoded_byte_array_data_bytes",
        bytes.len() as i64,
        chunk.pages.len() as u64,
    )?;
    for (at, (declared, (header, page))) in bytes.iter().zip(headers.iter().zip(&chunk.pages)).enumerate() {
        let real = unencoded_bytes(chunk, page);
        let least = if may_declare_too_few_bytes(header) { 0 } else { real };
        require_between(ClaimPlace { page: Some(at), ..whole_index }, *declared, least, real)?;
    }
    Ok(())
}

/// Refuses a column index with wrong null pages, bounds, counts, histograms or order.
pub fn compare_column_index(column: &str, declared: &ColumnIndex<'_>, chunk: &ChunkMeasure) -> Result<()> {
    let whole_index = index_place(column);
    for (claim, length) in [("null_pages", declared.null_pages.len()), ("min_values", declared.least.len())] {
        whole_index.require_count(claim, length as i64, chunk.pages.len() as u64)?;
    }
    whole_index.require_count("max_values", declared.greatest.len() as i64, chunk.pages.len() as u64)?;
    let all_pages = join_pages(chunk);
    for (at, page) in chunk.pages.iter().enumerate() {
        let place = ClaimPlace { page: Some(at), ..whole_index };
        if declared.null_pages[at] != (page.present == 0) {
            return Err(place.fault("null_pages", page.present == 0, declared.null_pages[at]));
        }
        for (side, (claim, value)) in
            [("min_values", declared.least[at]), ("max_values", declared.greatest[at])].into_iter().enumerate()
        {
            if page.present > 0 {
                // Polars writes the bounds of the whole chunk. Then readers only read more pages than needed.
                let by_page = compare_bound(place, claim, side, value, None, chunk.order, page);
                let by_chunk = || compare_bound(place, claim, side, value, None, chunk.order, &all_pages);
                by_page.or_else(|fault| by_chunk().map_err(|_| fault))?;
                require_sign_of_zero(place, claim, side, value, chunk.order, page)?;
            } else if !value.is_empty() {
                return Err(place.fault(claim, "none, because there is no value", "one"));
            }
        }
    }
    if let Some(nulls) = &declared.nulls {
        let real: Vec<u64> = chunk.pages.iter().map(|page| page.entries - page.present).collect();
        whole_index.require_counts("null_counts", nulls, &real)?;
    }
    compare_histograms(whole_index, declared, &chunk.pages)?;
    require_boundary_order(whole_index, declared, chunk.order)
}

/// Refuses a bound that is zero with the wrong sign. Readers of statistics treat 0 and -0 as equal, but Java orders
/// -0 below 0 in the index.
fn require_sign_of_zero(
    place: ClaimPlace<'_>,
    claim: &str,
    side: usize,
    declared: &[u8],
    order: Order,
    page: &PageMeasure,
) -> Result<()> {
    let Some((least, greatest)) = &page.bounds else { return Ok(()) };
    let outside = order.value(declared).is_some_and(|declared| match side {
        0 => is_zero(&declared) && declared.order(least).is_gt(),
        _ => is_zero(&declared) && declared.order(greatest).is_lt(),
    });
    if outside { Err(place.fault(claim, "the zero that bounds all values", "the other zero")) } else { Ok(()) }
}

fn is_zero(bound: &OrderedValue) -> bool {
    matches!(bound, OrderedValue::Float(value) if *value == 0.0)
        || matches!(bound, OrderedValue::Double(value) if *value == 0.0)
}

fn compare_histograms(whole_index: ClaimPlace<'_>, declared: &ColumnIndex<'_>, pages: &[PageMeasure]) -> Result<()> {
    if !declared.repetition.is_empty() {
        let real: Vec<u64> = pages.iter().flat_map(|page| &page.repetition).copied().collect();
        whole_index.require_counts("repetition_level_histograms", &declared.repetition, &real)?;
    }
    if !declared.definition.is_empty() {
        let real: Vec<u64> = pages.iter().flat_map(|page| &page.definition).copied().collect();
        whole_index.require_counts("definition_level_histograms", &declared.definition, &real)?;
    }
    Ok(())
}

/// Requires the declared boundary order, because readers search an ordered index by bisection.
fn require_boundary_order(whole_index: ClaimPlace<'_>, declared: &ColumnIndex<'_>, order: Order) -> Result<()> {
    if declared.order == 0 {
        return Ok(());
    }
    let is_known = matches!(declared.order, ASCENDING | DESCENDING);
    let fits = |values: &[&[u8]]| {
        let pages = values.iter().zip(&declared.null_pages).filter(|(_, is_null)| !**is_null);
        let bounds: Vec<_> = pages.map(|(value, _)| order.value(value)).collect();
        bounds.windows(2).all(|pair| match (&pair[0], &pair[1]) {
            (Some(a), Some(b)) if declared.order == ASCENDING => compare_values(a, b).is_le(),
            (Some(a), Some(b)) => compare_values(a, b).is_ge(),
            _ => false,
        })
    };
    if is_known && fits(&declared.least) && fits(&declared.greatest) {
        return Ok(());
    }
    Err(whole_index.fault("boundary_order", "the order of the pages", declared.order))
}
