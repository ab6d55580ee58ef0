//! A column chunk's claims beside what was measured: a count is exact, a bound of a number is exact, one of bytes holds.

use crate::error::{Fault, Result};
use crate::parquet::claims::measure::{ChunkMeasure, PageMeasure};
use crate::parquet::claims::metadata::{self, Statistics};
use crate::parquet::format::pages::{DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE};
use crate::parquet::ordered_value::{Order, OrderedValue, to_hex};
use parquet::basic::Type as Physical;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

pub const STATISTICS: &str = "parquet_statistics_lie";
pub const ENCODINGS: &str = "parquet_encodings_lie";
pub const UNVERIFIED: &str = "parquet_claim_unverified";
/// How much of a text, or how many bytes of what is none, a refusal quotes.
const SHOWN_MAX_CHARACTERS: usize = 32;
/// `Encoding` of the format.
const DELTA_BYTE_ARRAY: i64 = 7;
const ENDS: [&str; 2] = ["min", "max"];

/// Where a claim stands, for the words of a refusal.
#[derive(Clone, Copy)]
pub struct ClaimPlace<'a> {
    pub code: &'static str,
    pub column: &'a str,
    pub page: Option<usize>,
}

impl ClaimPlace<'_> {
    pub fn fault(&self, claim: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Fault {
        Fault::new(self.code, self.column, expected.to_string(), got.to_string()).of_claim(claim, self.page)
    }

    pub fn require_count(&self, claim: &str, declared: i64, real: u64) -> Result<()> {
        if u64::try_from(declared) == Ok(real) { Ok(()) } else { Err(self.fault(claim, real, declared)) }
    }

    pub fn require_counts(&self, claim: &str, declared: &[i64], real: &[u64]) -> Result<()> {
        if declared.iter().map(|each| u64::try_from(*each).ok()).eq(real.iter().map(|each| Some(*each))) {
            return Ok(());
        }
        Err(self.fault(claim, "as the levels are", "another"))
    }
}

/// All pages of a chunk as one.
pub fn join_pages(chunk: &ChunkMeasure) -> PageMeasure {
    let mut found = PageMeasure { bounds: chunk.ends.clone(), ..PageMeasure::default() };
    for page in &chunk.pages {
        found.entries += page.entries;
        found.present += page.present;
        found.nans += page.nans;
        found.rows += page.rows;
        found.bytes += page.bytes;
        for (into, from) in [(&mut found.repetition, &page.repetition), (&mut found.definition, &page.definition)] {
            into.resize(from.len(), 0);
            into.iter_mut().zip(from).for_each(|(sum, count)| *sum += count);
        }
    }
    found
}

/// The statistics of a page. Its ends may be those of the whole chunk, as Polars writes them where there is a dictionary: a
/// reader that goes by them only looks into more pages.
pub fn compare_page_statistics(
    place: ClaimPlace<'_>,
    declared: &Statistics<'_>,
    order: Order,
    page: &PageMeasure,
    whole: &PageMeasure,
) -> Result<()> {
    let is_of_page = compare_statistics(place, declared, order, page);
    if is_of_page.is_ok() || declared.nulls.is_some_and(|nulls| u64::try_from(nulls) != Ok(page.entries - page.present))
    {
        return is_of_page;
    }
    let ends = Statistics { old: declared.old, ends: declared.ends, exact: declared.exact, ..Statistics::default() };
    compare_statistics(place, &ends, order, whole).or(is_of_page)
}

/// How many values differ, where that is known without keeping them.
pub fn count_distinct(order: Order, real: &PageMeasure) -> Option<u64> {
    match (&real.bounds, order) {
        _ if real.present == 0 => Some(0),
        (Some((least, greatest)), Order::Boolean) => Some(if least == greatest { 1 } else { 2 }),
        _ => None,
    }
}

pub fn compare_statistics(
    place: ClaimPlace<'_>,
    declared: &Statistics<'_>,
    order: Order,
    real: &PageMeasure,
) -> Result<()> {
    if let Some(nulls) = declared.nulls {
        place.require_count("null_count", nulls, real.entries - real.present)?;
    }
    for (side, name) in ENDS.iter().enumerate() {
        if let Some(old) = declared.old[side] {
            compare_end(place, &format!("the old {name}"), side, old, None, order, real)?;
        }
        if let Some(value) = declared.ends[side] {
            compare_end(place, &format!("{name}_value"), side, value, declared.exact[side], order, real)?;
        }
    }
    Ok(())
}

/// One end: `side` 0 is the least, 1 the greatest.
pub fn compare_end(
    place: ClaimPlace<'_>,
    claim: &str,
    side: usize,
    declared: &[u8],
    exact: Option<bool>,
    order: Order,
    real: &PageMeasure,
) -> Result<()> {
    if order == Order::Undefined {
        let place = ClaimPlace { code: UNVERIFIED, ..place };
        return Err(place.fault(claim, "none, for a type whose values have no order", "one"));
    }
    // NaN is greatest for writers in Java, and readers of all kinds make nothing of it: true, where there is one.
    let nan = matches!(order.value(declared), Some(OrderedValue::Float(value)) if value.is_nan())
        || matches!(order.value(declared), Some(OrderedValue::Double(value)) if value.is_nan());
    if nan && real.nans > 0 && (side == 1 || real.bounds.is_none()) {
        return Ok(());
    }
    // In the same words as the value beside it; bytes that are no value of the type are told as they are.
    let shown = || {
        order
            .value(declared)
            .map_or_else(|| show_value(&OrderedValue::Bytes(declared.to_vec())), |declared| show_value(&declared))
    };
    let Some(ends) = &real.bounds else {
        return Err(place.fault(claim, "none, without a value", shown()));
    };
    let real = if side == 0 { &ends.0 } else { &ends.1 };
    if order.value(declared).is_some_and(|declared| end_holds(side, &declared, real, exact)) {
        return Ok(());
    }
    Err(place.fault(claim, show_value(real), shown()))
}

fn end_holds(side: usize, declared: &OrderedValue, real: &OrderedValue, exact: Option<bool>) -> bool {
    match (declared, real) {
        // Either zero stands for both, as readers are told to take it; NaN for none.
        (OrderedValue::Float(declared), OrderedValue::Float(real)) => declared == real,
        (OrderedValue::Double(declared), OrderedValue::Double(real)) => declared == real,
        (OrderedValue::Bytes(declared), OrderedValue::Bytes(real)) if exact != Some(true) => {
            if side == 0 {
                real.starts_with(declared)
            } else {
                declared >= real
            }
        }
        _ => declared == real,
    }
}

fn show_value(bound: &OrderedValue) -> String {
    match bound {
        OrderedValue::Integer(value) => value.to_string(),
        OrderedValue::Decimal(value) => value.to_string(),
        OrderedValue::Float(value) => value.to_string(),
        OrderedValue::Double(value) => value.to_string(),
        OrderedValue::Bytes(value) => match std::str::from_utf8(value) {
            Ok(text) => format!("{:?}", text.chars().take(SHOWN_MAX_CHARACTERS).collect::<String>()),
            Err(_) => to_hex(&value[..value.len().min(SHOWN_MAX_CHARACTERS)]),
        },
    }
}

/// How two ends that were told compare; zeros are equal.
pub fn compare_values(a: &OrderedValue, b: &OrderedValue) -> Ordering {
    match (a, b) {
        (OrderedValue::Float(a), OrderedValue::Float(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
        (OrderedValue::Double(a), OrderedValue::Double(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
        _ => a.order(b),
    }
}

/// A reader that believes that every page goes by the dictionary looks into nothing but the dictionary.
pub fn compare_encodings(
    column: &str,
    declared: &metadata::ChunkMetadata<'_>,
    headers: &[metadata::PageMetadata<'_>],
) -> Result<()> {
    let place = ClaimPlace { code: ENCODINGS, column, page: None };
    let mut real: BTreeMap<(bool, i64), u64> = BTreeMap::new();
    for page in headers {
        *real.entry((page.kind == DICTIONARY_PAGE, page.encoding)).or_default() += 1;
    }
    if let Some(missing) = real.keys().find(|(dictionary, each)| !dictionary && !declared.encodings.contains(each)) {
        return Err(place.fault("encodings", format!("{} among them", missing.1), format!("{:?}", declared.encodings)));
    }
    let Some(listed) = &declared.encoding_stats else { return Ok(()) };
    let (mut claimed, mut seen): (BTreeMap<(bool, i64), u64>, _) = (BTreeMap::new(), BTreeSet::new());
    for [kind, encoding, count] in listed {
        if ![DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE].contains(kind) || !seen.insert((kind, encoding)) {
            return Err(place.fault("encoding_stats", "data pages and dictionaries, each encoding once", "others"));
        }
        let count = u64::try_from(*count).map_err(|_| place.fault("encoding_stats", "a number of pages", count))?;
        // Pages of both versions are counted as one kind: writers do not agree on which to name.
        *claimed.entry((*kind == DICTIONARY_PAGE, *encoding)).or_default() += count;
    }
    if claimed == real { Ok(()) } else { Err(place.fault("encoding_stats", "those of the pages", "others")) }
}

/// The dictionary's own claim, and what only a dictionary can tell in bounded memory.
pub fn compare_dictionary(
    place: ClaimPlace<'_>,
    declared: &metadata::ChunkMetadata<'_>,
    headers: &[metadata::PageMetadata<'_>],
    chunk: &ChunkMeasure,
) -> Result<()> {
    let sorted = chunk.dictionary.as_ref().is_none_or(|dictionary| dictionary.is_sorted());
    if headers.iter().any(|page| page.kind == DICTIONARY_PAGE && page.sorted) && !sorted {
        return Err(place.fault("is_sorted", "a dictionary in order", "another"));
    }
    let Some(declared) = declared.statistics.distinct else { return Ok(()) };
    if let Some(real) = count_distinct(chunk.order, &join_pages(chunk)) {
        return place.require_count("distinct_count", declared, real);
    }
    match &chunk.dictionary {
        Some(dictionary) if chunk.pages.iter().all(|page| page.by_dictionary || page.present == 0) => {
            place.require_count("distinct_count", declared, dictionary.distinct_in_use())
        }
        _ => {
            let place = ClaimPlace { code: UNVERIFIED, ..place };
            Err(place.fault("distinct_count", "none, where not every page goes by the dictionary", declared))
        }
    }
}

pub fn compare_sizes(
    place: ClaimPlace<'_>,
    declared: &metadata::Sizes,
    chunk: &ChunkMeasure,
    real: &PageMeasure,
    headers: &[metadata::PageMetadata<'_>],
) -> Result<()> {
    if let Some(bytes) = declared.bytes {
        let least = if headers.iter().any(is_counted_short) { 0 } else { unencoded_bytes(chunk, real) };
        require_between(place, bytes, least, unencoded_bytes(chunk, real))?;
    }
    for (claim, declared, real) in [
        ("repetition_level_histogram", &declared.repetition, &real.repetition),
        ("definition_level_histogram", &declared.definition, &real.definition),
    ] {
        if !declared.is_empty() && !chunk.pages.is_empty() {
            place.require_counts(claim, declared, real)?;
        }
    }
    Ok(())
}

/// PyArrow leaves out values that are a start of the one before them, where pages have values as differences. The count is
/// for estimates of memory, and no reader chooses rows by it.
pub fn is_counted_short(page: &metadata::PageMetadata<'_>) -> bool {
    page.encoding == DELTA_BYTE_ARRAY
}

/// Holds a count of bytes to its range.
pub fn require_between(place: ClaimPlace<'_>, declared: i64, least: u64, most: u64) -> Result<()> {
    let is_held = u64::try_from(declared).is_ok_and(|declared| (least..=most).contains(&declared));
    if is_held { Ok(()) } else { Err(place.fault("unencoded_byte_array_data_bytes", most, declared)) }
}

/// Only byte arrays have sizes of their own.
pub fn unencoded_bytes(chunk: &ChunkMeasure, real: &PageMeasure) -> u64 {
    if chunk.column.physical_type() == Physical::BYTE_ARRAY { real.bytes } else { 0 }
}
