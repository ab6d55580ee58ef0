//! Page indexes beside the pages: a reader that trusts them opens no page that they rule out.

use crate::bound::{Bound, Order};
use crate::claims::judge::{Place, between, compared, end, is_counted_short, unencoded, whole};
use crate::claims::measure::{Chunk, Measure};
use crate::claims::told::{ColumnIndex, OffsetIndex, Page};
use crate::error::Result;

const CODE: &str = "parquet_page_index_lies";
const ASCENDING: i64 = 1;
const DESCENDING: i64 = 2;

pub fn place(column: &str) -> Place<'_> {
    Place { code: CODE, column, page: None }
}

pub fn offsets(column: &str, told: &OffsetIndex, headers: &[&Page<'_>], chunk: &Chunk) -> Result<()> {
    let all = place(column);
    all.count("pages in the offset index", told.pages.len() as i64, headers.len() as u64)?;
    let mut row = 0;
    for (at, ([offset, size, first], (header, page))) in
        told.pages.iter().zip(headers.iter().zip(&chunk.pages)).enumerate()
    {
        let place = Place { page: Some(at), ..all };
        place.count("offset", *offset, header.start as u64)?;
        place.count("compressed_page_size", *size, (header.end - header.start) as u64)?;
        place.count("first_row_index", *first, row)?;
        if !page.begins_row {
            return Err(place.fault(
                "first_row_index",
                "a page that begins with a row",
                "one that begins inside a row",
            ));
        }
        row += page.rows;
    }
    let Some(bytes) = &told.bytes else { return Ok(()) };
    all.count("pages with unencoded_byte_array_data_bytes", bytes.len() as i64, chunk.pages.len() as u64)?;
    for (at, (told, (header, page))) in bytes.iter().zip(headers.iter().zip(&chunk.pages)).enumerate() {
        let real = unencoded(chunk, page);
        let least = if is_counted_short(header) { 0 } else { real };
        between(Place { page: Some(at), ..all }, *told, least, real)?;
    }
    Ok(())
}

pub fn columns(column: &str, told: &ColumnIndex<'_>, chunk: &Chunk) -> Result<()> {
    let all = place(column);
    for (claim, length) in [("null_pages", told.null_pages.len()), ("min_values", told.least.len())] {
        all.count(claim, length as i64, chunk.pages.len() as u64)?;
    }
    all.count("max_values", told.greatest.len() as i64, chunk.pages.len() as u64)?;
    let all_pages = whole(chunk);
    for (at, page) in chunk.pages.iter().enumerate() {
        let place = Place { page: Some(at), ..all };
        if told.null_pages[at] != (page.present == 0) {
            return Err(place.fault("null_pages", page.present == 0, told.null_pages[at]));
        }
        for (side, (claim, value)) in
            [("min_values", told.least[at]), ("max_values", told.greatest[at])].into_iter().enumerate()
        {
            if page.present > 0 {
                // Polars writes the ends of the whole chunk: readers only look into more pages.
                let is_of_page = end(place, claim, side, value, None, chunk.order, page);
                let is_of_chunk = || end(place, claim, side, value, None, chunk.order, &all_pages);
                is_of_page.or_else(|fault| is_of_chunk().map_err(|_| fault))?;
                zero(place, claim, side, value, chunk.order, page)?;
            } else if !value.is_empty() {
                return Err(place.fault(claim, "none, without a value", "one"));
            }
        }
    }
    if let Some(nulls) = &told.nulls {
        let real: Vec<u64> = chunk.pages.iter().map(|page| page.entries - page.present).collect();
        all.counts("null_counts", nulls, &real)?;
    }
    histograms(all, told, &chunk.pages)?;
    ordered(all, told, chunk.order)
}

/// In statistics readers take either zero for both; in the index Java takes it as it stands, and -0 is below 0.
fn zero(place: Place<'_>, claim: &str, side: usize, told: &[u8], order: Order, page: &Measure) -> Result<()> {
    let Some((least, greatest)) = &page.bounds else { return Ok(()) };
    let outside = order.value(told).is_some_and(|told| match side {
        0 => is_zero(&told) && told.order(least).is_gt(),
        _ => is_zero(&told) && told.order(greatest).is_lt(),
    });
    if outside { Err(place.fault(claim, "the zero beyond which no value lies", "the other")) } else { Ok(()) }
}

fn is_zero(bound: &Bound) -> bool {
    matches!(bound, Bound::Float(value) if *value == 0.0) || matches!(bound, Bound::Double(value) if *value == 0.0)
}

fn histograms(all: Place<'_>, told: &ColumnIndex<'_>, pages: &[Measure]) -> Result<()> {
    let levels = |of: fn(&Measure) -> &Vec<u64>| pages.iter().flat_map(of).copied().collect::<Vec<u64>>();
    for (claim, told, real) in [
        ("repetition_level_histograms", &told.repetition, levels(|page| &page.repetition)),
        ("definition_level_histograms", &told.definition, levels(|page| &page.definition)),
    ] {
        if !told.is_empty() {
            all.counts(claim, told, &real)?;
        }
    }
    Ok(())
}

/// Readers search an ordered index by halves.
fn ordered(all: Place<'_>, told: &ColumnIndex<'_>, order: Order) -> Result<()> {
    if told.order == 0 {
        return Ok(());
    }
    let known = matches!(told.order, ASCENDING | DESCENDING);
    let fits = |values: &[&[u8]]| {
        let ends: Vec<_> = values.iter().zip(&told.null_pages).filter(|(_, null)| !**null).collect();
        ends.windows(2).all(|pair| match (order.value(pair[0].0), order.value(pair[1].0)) {
            (Some(a), Some(b)) if told.order == ASCENDING => compared(&a, &b).is_le(),
            (Some(a), Some(b)) => compared(&a, &b).is_ge(),
            _ => false,
        })
    };
    if known && fits(&told.least) && fits(&told.greatest) {
        return Ok(());
    }
    Err(all.fault("boundary_order", "the order of the pages", told.order))
}
