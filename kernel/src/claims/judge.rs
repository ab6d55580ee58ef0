//! A column chunk's claims beside what was measured: a count is exact, a bound of a number is exact, one of bytes holds.

use crate::bound::{Bound, Order, hex};
use crate::claims::measure::{Chunk, Measure};
use crate::claims::told::{self, Statistics};
use crate::error::{Fault, Result};
use crate::headers::{DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE};
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
pub struct Place<'a> {
    pub code: &'static str,
    pub column: &'a str,
    pub page: Option<usize>,
}

impl Place<'_> {
    pub fn fault(&self, claim: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Fault {
        Fault::new(self.code, self.column, expected.to_string(), got.to_string()).of_claim(claim, self.page)
    }

    pub fn count(&self, claim: &str, told: i64, real: u64) -> Result<()> {
        if u64::try_from(told) == Ok(real) { Ok(()) } else { Err(self.fault(claim, real, told)) }
    }

    pub fn counts(&self, claim: &str, told: &[i64], real: &[u64]) -> Result<()> {
        if told.iter().map(|each| u64::try_from(*each).ok()).eq(real.iter().map(|each| Some(*each))) {
            return Ok(());
        }
        Err(self.fault(claim, "as the levels are", "another"))
    }
}

/// All pages of a chunk as one.
pub fn whole(chunk: &Chunk) -> Measure {
    let mut found = Measure { bounds: chunk.ends.clone(), ..Measure::default() };
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
pub fn page_statistics(
    place: Place<'_>,
    told: &Statistics<'_>,
    order: Order,
    page: &Measure,
    whole: &Measure,
) -> Result<()> {
    let is_of_page = statistics(place, told, order, page);
    if is_of_page.is_ok() || told.nulls.is_some_and(|nulls| u64::try_from(nulls) != Ok(page.entries - page.present)) {
        return is_of_page;
    }
    let ends = Statistics { old: told.old, ends: told.ends, exact: told.exact, ..Statistics::default() };
    statistics(place, &ends, order, whole).or(is_of_page)
}

/// How many values differ, where that is known without keeping them.
pub fn distinct(order: Order, real: &Measure) -> Option<u64> {
    match (&real.bounds, order) {
        _ if real.present == 0 => Some(0),
        (Some((least, greatest)), Order::Boolean) => Some(if least == greatest { 1 } else { 2 }),
        _ => None,
    }
}

pub fn statistics(place: Place<'_>, told: &Statistics<'_>, order: Order, real: &Measure) -> Result<()> {
    if let Some(nulls) = told.nulls {
        place.count("null_count", nulls, real.entries - real.present)?;
    }
    for (side, name) in ENDS.iter().enumerate() {
        if let Some(old) = told.old[side] {
            end(place, &format!("the old {name}"), side, old, None, order, real)?;
        }
        if let Some(value) = told.ends[side] {
            end(place, &format!("{name}_value"), side, value, told.exact[side], order, real)?;
        }
    }
    Ok(())
}

/// One end: `side` 0 is the least, 1 the greatest.
pub fn end(
    place: Place<'_>,
    claim: &str,
    side: usize,
    told: &[u8],
    exact: Option<bool>,
    order: Order,
    real: &Measure,
) -> Result<()> {
    if order == Order::Undefined {
        let place = Place { code: UNVERIFIED, ..place };
        return Err(place.fault(claim, "none, for a type whose values have no order", "one"));
    }
    // NaN is greatest for writers in Java, and readers of all kinds make nothing of it: true, where there is one.
    let nan = matches!(order.value(told), Some(Bound::Float(value)) if value.is_nan())
        || matches!(order.value(told), Some(Bound::Double(value)) if value.is_nan());
    if nan && real.nans > 0 && (side == 1 || real.bounds.is_none()) {
        return Ok(());
    }
    // In the same words as the value beside it; bytes that are no value of the type are told as they are.
    let shown = || order.value(told).map_or_else(|| text(&Bound::Bytes(told.to_vec())), |told| text(&told));
    let Some(ends) = &real.bounds else {
        return Err(place.fault(claim, "none, without a value", shown()));
    };
    let real = if side == 0 { &ends.0 } else { &ends.1 };
    if order.value(told).is_some_and(|told| holds(side, &told, real, exact)) {
        return Ok(());
    }
    Err(place.fault(claim, text(real), shown()))
}

fn holds(side: usize, told: &Bound, real: &Bound, exact: Option<bool>) -> bool {
    match (told, real) {
        // Either zero stands for both, as readers are told to take it; NaN for none.
        (Bound::Float(told), Bound::Float(real)) => told == real,
        (Bound::Double(told), Bound::Double(real)) => told == real,
        (Bound::Bytes(told), Bound::Bytes(real)) if exact != Some(true) => {
            if side == 0 {
                real.starts_with(told)
            } else {
                told >= real
            }
        }
        _ => told == real,
    }
}

fn text(bound: &Bound) -> String {
    match bound {
        Bound::Integer(value) => value.to_string(),
        Bound::Decimal(value) => value.to_string(),
        Bound::Float(value) => value.to_string(),
        Bound::Double(value) => value.to_string(),
        Bound::Bytes(value) => match std::str::from_utf8(value) {
            Ok(text) => format!("{:?}", text.chars().take(SHOWN_MAX_CHARACTERS).collect::<String>()),
            Err(_) => hex(&value[..value.len().min(SHOWN_MAX_CHARACTERS)]),
        },
    }
}

/// How two ends that were told compare; zeros are equal.
pub fn compared(a: &Bound, b: &Bound) -> Ordering {
    match (a, b) {
        (Bound::Float(a), Bound::Float(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
        (Bound::Double(a), Bound::Double(b)) => a.partial_cmp(b).unwrap_or_else(|| a.total_cmp(b)),
        _ => a.order(b),
    }
}

/// A reader that believes that every page goes by the dictionary looks into nothing but the dictionary.
pub fn encodings(column: &str, told: &told::Chunk<'_>, headers: &[told::Page<'_>]) -> Result<()> {
    let place = Place { code: ENCODINGS, column, page: None };
    let mut real: BTreeMap<(bool, i64), u64> = BTreeMap::new();
    for page in headers {
        *real.entry((page.kind == DICTIONARY_PAGE, page.encoding)).or_default() += 1;
    }
    if let Some(missing) = real.keys().find(|(dictionary, each)| !dictionary && !told.encodings.contains(each)) {
        return Err(place.fault("encodings", format!("{} among them", missing.1), format!("{:?}", told.encodings)));
    }
    let Some(listed) = &told.encoding_stats else { return Ok(()) };
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
pub fn dictionary(place: Place<'_>, told: &told::Chunk<'_>, headers: &[told::Page<'_>], chunk: &Chunk) -> Result<()> {
    let sorted = chunk.dictionary.as_ref().is_none_or(|dictionary| dictionary.is_sorted());
    if headers.iter().any(|page| page.kind == DICTIONARY_PAGE && page.sorted) && !sorted {
        return Err(place.fault("is_sorted", "a dictionary in order", "another"));
    }
    let Some(told) = told.statistics.distinct else { return Ok(()) };
    if let Some(real) = distinct(chunk.order, &whole(chunk)) {
        return place.count("distinct_count", told, real);
    }
    match &chunk.dictionary {
        Some(dictionary) if chunk.pages.iter().all(|page| page.by_dictionary || page.present == 0) => {
            place.count("distinct_count", told, dictionary.distinct_in_use())
        }
        _ => {
            let place = Place { code: UNVERIFIED, ..place };
            Err(place.fault("distinct_count", "none, where not every page goes by the dictionary", told))
        }
    }
}

pub fn sizes(
    place: Place<'_>,
    told: &told::Sizes,
    chunk: &Chunk,
    real: &Measure,
    headers: &[told::Page<'_>],
) -> Result<()> {
    if let Some(bytes) = told.bytes {
        let least = if headers.iter().any(is_counted_short) { 0 } else { unencoded(chunk, real) };
        between(place, bytes, least, unencoded(chunk, real))?;
    }
    for (claim, told, real) in [
        ("repetition_level_histogram", &told.repetition, &real.repetition),
        ("definition_level_histogram", &told.definition, &real.definition),
    ] {
        if !told.is_empty() && !chunk.pages.is_empty() {
            place.counts(claim, told, real)?;
        }
    }
    Ok(())
}

/// PyArrow leaves out values that are a start of the one before them, where pages have values as differences. The count is
/// for estimates of memory, and no reader chooses rows by it.
pub fn is_counted_short(page: &told::Page<'_>) -> bool {
    page.encoding == DELTA_BYTE_ARRAY
}

/// Holds a count of bytes to its range.
pub fn between(place: Place<'_>, told: i64, least: u64, most: u64) -> Result<()> {
    let is_held = u64::try_from(told).is_ok_and(|told| (least..=most).contains(&told));
    if is_held { Ok(()) } else { Err(place.fault("unencoded_byte_array_data_bytes", most, told)) }
}

/// Only byte arrays have sizes of their own.
pub fn unencoded(chunk: &Chunk, real: &Measure) -> u64 {
    if chunk.column.physical_type() == Physical::BYTE_ARRAY { real.bytes } else { 0 }
}
