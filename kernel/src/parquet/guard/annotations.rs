//! Checks the annotations of schema elements, which say what the stored bytes mean. Some readers know only the
//! deprecated annotations (`ConvertedType`), and others prefer the new annotations (`LogicalType`). So an element with
//! a new annotation must also have the deprecated annotation of the same meaning, with a few exceptions. A
//! deprecated annotation needs no new annotation beside it, except for timestamps. This module also checks that every
//! reader finds the same leaves.

use crate::error::{Fault, Result};
use crate::parquet::format::thrift::{Scan, TRUE};

/// The greatest number of the enum `ConvertedType` of the format. Other numbers of this enum follow.
const CONVERTED_LAST: i64 = 21;
const UTF8: i64 = 0;
const MAP: i64 = 1;
const MAP_KEY_VALUE: i64 = 2;
const LIST: i64 = 3;
const DECIMAL: i64 = 5;
const DATE: i64 = 6;
/// The first of the four unsigned integers.
const UINT_8: i64 = 11;
/// The first of the four signed integers.
const INT_8: i64 = 15;
const JSON: i64 = 19;
/// Some readers take ENUM and BSON as bytes, others as text, which changes invalid UTF-8.
const ENUM: i64 = 4;
const BSON: i64 = 20;
/// The deprecated annotations of times: in milliseconds, and in microseconds.
const TIMES: [i64; 2] = [7, 8];
/// The deprecated annotations of timestamps: in milliseconds, and in microseconds.
const TIMESTAMPS: [i64; 2] = [9, 10];
/// The number of this member in the enum `FieldRepetitionType` of the format.
const REPEATED: i64 = 2;
/// Numbers of the enum `Type` of the format.
const INT32: i64 = 1;
const INT64: i64 = 2;
const BYTE_ARRAY: i64 = 6;
const FIXED_LEN_BYTE_ARRAY: i64 = 7;
/// The longest decimals that PyArrow and Polars read.
const DECIMAL_MAX_BYTES: i64 = 16;

/// A `SchemaElement` of the footer.
#[derive(Debug, Default)]
struct Element<'a> {
    physical: Option<i64>,
    /// The length of values of a fixed length.
    length: i64,
    repetition: Option<i64>,
    name: &'a [u8],
    children: i64,
    /// The deprecated annotation.
    converted: Option<i64>,
    /// The scale of a decimal.
    scale: i64,
    /// The precision of a decimal.
    precision: i64,
    /// The new annotation.
    logical: Option<Logical>,
}

#[derive(Debug, Default)]
struct Logical {
    /// The member of the union `LogicalType`: 1 string, 2 map, 3 list, 4 enum, 5 decimal, 6 date, 7 time, 8 timestamp,
    /// 10 integer, 11 unknown, 12 JSON, 13 BSON, 14 UUID, 15 float16, 16 variant, 17 geometry, 18 geography.
    kind: i16,
    scale: i64,
    precision: i64,
    /// For a time or timestamp: whether it is in UTC. For an integer: whether it is signed.
    flag: bool,
    /// 1 is milliseconds, 2 microseconds, 3 nanoseconds.
    unit: i16,
    /// The width of an integer.
    bits: u8,
}

/// Refuses schema elements in which some readers would find other columns or types. The footer must have passed
/// `thrift_form::is_unambiguous`.
pub fn require_annotations(footer: &[u8]) -> Result<()> {
    let mut refused = None;
    let scanned = Scan::new(footer, 0).each_field(|scan, id, _| {
        // Field 2 of `FileMetaData` is the schema.
        if id != 2 {
            return Some(false);
        }
        refused = refused.take().or(check_elements(scan)?);
        Some(true)
    });
    match (refused, scanned) {
        (Some(fault), _) => Err(fault),
        (None, None) => Err(Fault::new("parquet_ambiguous", "", "a schema", "none")),
        (None, Some(())) => Ok(()),
    }
}

/// Checks all elements. The inner option is the first fault. The outer option is `None` if the elements cannot be
/// parsed.
fn check_elements(scan: &mut Scan<'_>) -> Option<Option<Fault>> {
    let (count, _) = scan.list()?;
    // The open groups, each with the number of its children still to come.
    let mut open: Vec<(&[u8], i64)> = Vec::new();
    for at in 0..count {
        let found = read_element(scan)?;
        let problem = if at == 0 { None } else { found.find_problem() };
        if let Some(expected) = problem {
            let names = open.iter().skip(1).map(|(name, _)| *name).chain([found.name]);
            let path: Vec<_> = names.map(String::from_utf8_lossy).collect();
            return Some(Some(Fault::new("parquet_ambiguous", &path.join("."), expected, "a different one")));
        }
        if let Some((_, left)) = open.last_mut() {
            *left -= 1;
        }
        open.push((found.name, found.children));
        while open.last().is_some_and(|(_, left)| *left <= 0) {
            open.pop();
        }
    }
    Some(None)
}

fn read_element<'a>(scan: &mut Scan<'a>) -> Option<Element<'a>> {
    let mut found = Element::default();
    scan.each_field(|scan, id, _| {
        match id {
            1 => found.physical = Some(scan.integer()?),
            2 => found.length = scan.integer()?,
            3 => found.repetition = Some(scan.integer()?),
            4 => found.name = scan.binary()?,
            5 => found.children = scan.integer()?,
            6 => found.converted = Some(scan.integer()?),
            7 => found.scale = scan.integer()?,
            8 => found.precision = scan.integer()?,
            10 => found.logical = read_logical(scan)?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

/// Reads the union `LogicalType`. The inner option is `None` if the union is empty. The outer option is `None` if the
/// union cannot be parsed.
fn read_logical(scan: &mut Scan<'_>) -> Option<Option<Logical>> {
    let mut found = None;
    scan.each_field(|scan, kind, _| {
        let mut logical = Logical { kind, ..Logical::default() };
        scan.each_field(|scan, id, wire| {
            match (kind, id) {
                (5, 1) => logical.scale = scan.integer()?,
                (5, 2) => logical.precision = scan.integer()?,
                (7 | 8, 1) | (10, 2) => logical.flag = wire == TRUE,
                (7 | 8, 2) => scan.each_field(|_, unit, _| {
                    logical.unit = unit;
                    Some(false)
                })?,
                (10, 1) => logical.bits = scan.byte()?,
                _ => return Some(false),
            }
            Some(true)
        })?;
        found = Some(logical);
        Some(true)
    })?;
    Some(found)
}

impl Element<'_> {
    /// Returns what was expected, if readers disagree on the element.
    fn find_problem(&self) -> Option<&'static str> {
        if self.physical.is_some() == (self.children != 0) || self.children < 0 {
            return Some("a leaf with a type or a group with children");
        }
        if !self.repetition.is_some_and(|repetition| (0..=REPEATED).contains(&repetition)) {
            return Some("required, optional or repeated");
        }
        let is_known = self.converted.is_none_or(|converted| (0..=CONVERTED_LAST).contains(&converted));
        match &self.logical {
            _ if !is_known => Some("an annotation of the format"),
            _ if !self.suits_physical_type() => Some("an annotation that suits the type"),
            // DuckDB reads the deprecated timestamps as local timestamps; other engines read them as instants.
            None if self.converted.is_some_and(|old| TIMESTAMPS.contains(&old)) => {
                Some("the new annotation beside the deprecated one")
            }
            _ if self.converted == Some(MAP_KEY_VALUE) && self.repetition != Some(REPEATED) => Some("entries of a map"),
            _ if matches!(self.converted, Some(ENUM | BSON)) => {
                Some("text, bytes or an annotation that all readers know")
            }
            _ if self.converted == Some(DECIMAL) && self.length > DECIMAL_MAX_BYTES => {
                Some("a decimal of at most 16 bytes")
            }
            // Iceberg writes no such decimals, and its vectorized reader fails on them.
            _ if self.converted == Some(DECIMAL) && self.physical == Some(BYTE_ARRAY) => {
                Some("a decimal in numbers or bytes of a fixed length")
            }
            Some(logical) if !self.agrees_with(logical) => Some("the deprecated annotation that matches the new one"),
            _ => None,
        }
    }

    /// Whether the deprecated annotation fits the physical type, or fits a group. PyArrow and Polars do not read a file
    /// with another annotation.
    fn suits_physical_type(&self) -> bool {
        let Some(converted) = self.converted else { return true };
        // 7 to 10 are times and timestamps, 11 to 18 integers of 8 to 64 bits, and 21 is an interval.
        let physical: &[i64] = match converted {
            UTF8 | ENUM | JSON | BSON => &[BYTE_ARRAY],
            MAP..=LIST => &[],
            DECIMAL => &[INT32, INT64, BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY],
            DATE | 7 | 11..=13 | 15..=17 => &[INT32],
            8..=10 | 14 | 18 => &[INT64],
            _ => &[FIXED_LEN_BYTE_ARRAY],
        };
        self.physical.map_or(physical.is_empty(), |own| physical.contains(&own))
    }

    /// Whether the deprecated annotation means the same as the new one.
    fn agrees_with(&self, logical: &Logical) -> bool {
        let only = |converted: i64| self.converted == Some(converted);
        let agrees_in_unit = |by_unit: [i64; 2]| {
            let old = usize::try_from(logical.unit - 1).ok().and_then(|unit| by_unit.get(unit)).copied();
            // The deprecated times are in UTC. For local times some writers omit the deprecated
            // annotation.
            self.converted == old || self.converted.is_none() && !logical.flag
        };
        // Polars writes only the new annotation of an instant, and every engine uses the new annotation.
        let is_instant_alone = self.converted.is_none() && logical.flag;
        match logical.kind {
            1 => only(UTF8),
            2 => only(MAP),
            3 => only(LIST),
            4 => only(ENUM),
            5 => only(DECIMAL) && (self.scale, self.precision) == (logical.scale, logical.precision),
            6 => only(DATE),
            7 => agrees_in_unit(TIMES),
            8 => is_instant_alone || agrees_in_unit(TIMESTAMPS),
            10 => converted_integer(logical).is_some_and(only),
            // Java writers annotate the entries of a map as unknown, beside the deprecated MAP_KEY_VALUE.
            11 => self.converted.is_none_or(|converted| converted == MAP_KEY_VALUE && self.children > 0),
            12 => only(JSON),
            13 => only(BSON),
            14..=18 => self.converted.is_none(),
            _ => false,
        }
    }
}

/// The deprecated annotation of an integer with the width and sign of the new one.
fn converted_integer(logical: &Logical) -> Option<i64> {
    let first = if logical.flag { INT_8 } else { UINT_8 };
    let at = [8, 16, 32, 64].iter().position(|bits| *bits == logical.bits)?;
    Some(first + at as i64)
}
