//! Compares what a file's metadata declares about a column chunk (its *claims*) with what its pages contain (its
//! *measure*). Counts and bounds of numbers must be exact. Bounds of bytes may be truncated.

use crate::error::{Fault, Result};
use crate::parquet::claims::measure::{ChunkMeasure, PageMeasure};
use crate::parquet::claims::metadata::{self, Statistics};
use crate::parquet::format::pages::{DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE};
use crate::parquet::ordered_value::{Order, OrderedValue, to_hex};
use parquet::basic::Type as Physical;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Error codes.
pub const STATISTICS: &str = "parquet_statistics_lie";
pub const ENCODINGS: &str = "parquet_encodings_lie";
pub const UNVERIFIED: &str = "parquet_claim_unverified";
/// How many characters of a text, or bytes of other values, a message quotes.
const SHOWN_MAX_CHARACTERS: usize = 32;
/// The number of this encoding in the enum `Encoding` of the format.
const DELTA_BYTE_ARRAY: i64 = 7;
const BOUND_NAMES: [&str; 2] = ["min", "max"];

/// The error code for a kind of claim, and the position of the claim.
#[derive(Clone, Copy)]
pub struct ClaimPlace<'a> {
    pub code: &'static str,
    pub column: &'a str,
    pub page: Option<usize>,
}

impl ClaimPlace<'_> {
    /// The error for a claim that does not hold.
    pub fn fault(&self, claim: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Fault {
        Fault::new(self.code, self.column, expected.to_string(), got.to_string()).of_claim(claim, self.page)
    }

    pub fn require_count(&self, claim: &str, declared: i64, real: u64) -> Result<()> {
        if u64::try_from(declared) == Ok(real) { Ok(()) } else { Err(self.fault(claim, real, declared)) }
    }

    pub fn require_counts(&self, claim: &str, declared: &[i64], real: &[u64]) -> Result<()> {
        if declared.iter().map(|count| u64::try_from(*count).ok()).eq(real.iter().map(|count| Some(*count))) {
            return Ok(());
        }
        Err(self.fault(claim, "the counts of the pages", "different ones"))
    }
}

/// Joins the measures of all pages of a chunk.
pub fn join_pages(chunk: &ChunkMeasure) -> PageMeasure {
    let mut found = PageMeasure { bounds: chunk.bounds.clone(), ..PageMeasure::default() };
    for page in &chunk.pages {
        found.entries += page.entries;
        found.present += page.present;
        found.nans += page.nans;
        found.rows += page.rows;
        found.bytes += page.bytes;
        let histograms = [(&mut found.repetition, &page.repetition), (&mut found.definition, &page.definition)];
        for (sums, counts) in histograms {
            sums.resize(counts.len(), 0);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }
    found
}

/// Compares the statistics of a page. The bounds may be those of the whole chunk, as Polars writes them for pages with
/// a dictionary. Readers then read more pages than needed, but lose no row.
pub fn compare_page_statistics(
    place: ClaimPlace<'_>,
    declared: &Statistics<'_>,
    order: Order,
    page: &PageMeasure,
    whole: &PageMeasure,
) -> Result<()> {
    let result = compare_statistics(place, declared, order, page);
    if result.is_ok() || declared.nulls.is_some_and(|nulls| u64::try_from(nulls) != Ok(page.entries - page.present)) {
        return result;
    }
    let Statistics { old, bounds, exact, .. } = *declared;
    let only_bounds = Statistics { old, bounds, exact, ..Statistics::default() };
    compare_statistics(place, &only_bounds, order, whole).or(result)
}

/// The number of distinct values, if it is known without storing them.
pub fn count_distinct(order: Order, real: &PageMeasure) -> Option<u64> {
    match (&real.bounds, order) {
        _ if real.present == 0 => Some(0),
        (Some((least, greatest)), Order::Boolean) => Some(if least == greatest { 1 } else { 2 }),
        _ => None,
    }
}

/// Compares null count and bounds. An absent field is not a claim.
pub fn compare_statistics(
    place: ClaimPlace<'_>,
    declared: &Statistics<'_>,
    order: Order,
    real: &PageMeasure,
) -> Result<()> {
    if let Some(nulls) = declared.nulls {
        place.require_count("null_count", nulls, real.entries - real.present)?;
    }
    for (side, name) in BOUND_NAMES.iter().enumerate() {
        if let Some(old) = declared.old[side] {
            compare_bound(place, &format!("deprecated {name}"), side, old, None, order, real)?;
        }
        if let Some(value) = declared.bounds[side] {
            compare_bound(place, &format!("{name}_value"), side, value, declared.exact[side], order, real)?;
        }
    }
    Ok(())
}

/// Compares one bound. `side` 0 is the least value, 1 the greatest.
pub fn compare_bound(
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
    // Java writers treat NaN as greatest, and readers ignore a NaN bound. So NaN is accepted as the greatest value if
    // any value is NaN, and as the least value if every value is NaN.
    let is_nan = matches!(order.value(declared), Some(OrderedValue::Float(value)) if value.is_nan())
        || matches!(order.value(declared), Some(OrderedValue::Double(value)) if value.is_nan());
    if is_nan && real.nans > 0 && (side == 1 || real.bounds.is_none()) {
        return Ok(());
    }
    // A message shows the declared and the real bound in the same way. Bytes that are not a value of the type are shown
    // as bytes.
    let shown = || {
        order
            .value(declared)
            .map_or_else(|| show_value(&OrderedValue::Bytes(declared.to_vec())), |declared| show_value(&declared))
    };
    let Some((least, greatest)) = &real.bounds else {
        return Err(place.fault(claim, "none, because there is no value", shown()));
    };
    let real = if side == 0 { least } else { greatest };
    if order.value(declared).is_some_and(|declared| bound_holds(side, &declared, real, exact)) {
        return Ok(());
    }
    Err(place.fault(claim, show_value(real), shown()))
}

/// Whether a declared bound holds. A bound of bytes may be truncated unless it is declared as exact.
fn bound_holds(side: usize, declared: &OrderedValue, real: &OrderedValue, exact: Option<bool>) -> bool {
    match (declared, real) {
        // The format tells readers to treat 0 and -0 as equal, as `==` does. A NaN bound equals no value.
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

/// Compares two values. Zero and negative zero are equal.
pub fn compare_values(a: &OrderedValue, b: &OrderedValue) -> Ordering {
    match (a, b) {
        (OrderedValue::Float(a), OrderedValue::Float(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
        (OrderedValue::Double(a), OrderedValue::Double(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
        _ => a.order(b),
    }
}

/// Compares the declared encodings with the pages. If all pages are declared to use the dictionary, readers filter by
/// the dictionary alone.
pub fn compare_encodings(
    column: &str,
    declared: &metadata::ChunkMetadata<'_>,
    headers: &[metadata::PageMetadata<'_>],
) -> Result<()> {
    let place = ClaimPlace { code: ENCODINGS, column, page: None };
    // Key: whether a page is a dictionary, and its encoding. Value: the number of such pages.
    let mut real: BTreeMap<(bool, i64), u64> = BTreeMap::new();
    for page in headers {
        *real.entry((page.kind == DICTIONARY_PAGE, page.encoding)).or_default() += 1;
    }
    let missing =
        real.keys().find(|(is_dictionary, encoding)| !is_dictionary && !declared.encodings.contains(encoding));
    if let Some((_, encoding)) = missing {
        return Err(place.fault("encodings", format!("{encoding} among them"), format!("{:?}", declared.encodings)));
    }
    let Some(listed) = &declared.encoding_stats else { return Ok(()) };
    let (mut claimed, mut seen): (BTreeMap<(bool, i64), u64>, _) = (BTreeMap::new(), BTreeSet::new());
    for [kind, encoding, count] in listed {
        if ![DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE].contains(kind) || !seen.insert((kind, encoding)) {
            return Err(place.fault(
                "encoding_stats",
                "data pages and dictionaries, each encoding once",
                "different ones",
            ));
        }
        let count = u64::try_from(*count).map_err(|_| place.fault("encoding_stats", "a number of pages", count))?;
        // Pages of both versions count as one kind, because writers disagree on which version to name.
        *claimed.entry((*kind == DICTIONARY_PAGE, *encoding)).or_default() += count;
    }
    if claimed == real {
        Ok(())
    } else {
        Err(place.fault("encoding_stats", "the encodings of the pages", "different ones"))
    }
}

/// Compares the claims about the dictionary, and the number of distinct values. If `count_distinct` does not know this
/// number, it can be counted in bounded memory only if all pages use the dictionary.
pub fn compare_dictionary(
    place: ClaimPlace<'_>,
    declared: &metadata::ChunkMetadata<'_>,
    headers: &[metadata::PageMetadata<'_>],
    chunk: &ChunkMeasure,
) -> Result<()> {
    let is_sorted = chunk.dictionary.as_ref().is_none_or(|dictionary| dictionary.is_sorted());
    if headers.iter().any(|page| page.kind == DICTIONARY_PAGE && page.sorted) && !is_sorted {
        return Err(place.fault("is_sorted", "a sorted dictionary", "a different one"));
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
            Err(place.fault("distinct_count", "none, unless every page uses the dictionary", declared))
        }
    }
}

/// Compares the unencoded bytes and the histograms of levels.
pub fn compare_sizes(
    place: ClaimPlace<'_>,
    declared: &metadata::Sizes,
    chunk: &ChunkMeasure,
    real: &PageMeasure,
    headers: &[metadata::PageMetadata<'_>],
) -> Result<()> {
    if let Some(bytes) = declared.bytes {
        let least = if headers.iter().any(may_declare_too_few_bytes) { 0 } else { unencoded_bytes(chunk, real) };
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

/// Whether the declared byte count may be too small. With delta encoding, PyArrow does not count values that are a
/// prefix of the previous one. The count is for memory estimates, and no reader selects rows by it.
pub fn may_declare_too_few_bytes(page: &metadata::PageMetadata<'_>) -> bool {
    page.encoding == DELTA_BYTE_ARRAY
}

/// Refuses a byte count outside its range.
pub fn require_between(place: ClaimPlace<'_>, declared: i64, least: u64, most: u64) -> Result<()> {
    let is_between = u64::try_from(declared).is_ok_and(|declared| (least..=most).contains(&declared));
    if is_between { Ok(()) } else { Err(place.fault("unencoded_byte_array_data_bytes", most, declared)) }
}

/// The unencoded bytes of byte arrays; 0 for other types.
pub fn unencoded_bytes(chunk: &ChunkMeasure, real: &PageMeasure) -> u64 {
    if chunk.column.physical_type() == Physical::BYTE_ARRAY { real.bytes } else { 0 }
}
