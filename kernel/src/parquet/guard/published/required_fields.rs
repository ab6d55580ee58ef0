//! Requires fields without which some engine does not open a file. PyArrow and DuckDB need all fields that Parquet's
//! Thrift definition requires. Trino also needs the values of key-value pairs.

use crate::error::{Fault, Result};
use crate::parquet::format::thrift::{LIST, Scan};

/// The required field ids of a struct, and the structs inside it, single or in a list.
struct RequiredFields {
    name: &'static str,
    required: &'static [i16],
    inside: &'static [(i16, &'static RequiredFields)],
}

const KEY_VALUE: RequiredFields = RequiredFields { name: "KeyValue", required: &[1], inside: &[] };
/// The format allows a missing value, but Trino does not read such a file.
const FILE_KEY_VALUE: RequiredFields = RequiredFields { name: "KeyValue", required: &[1, 2], inside: &[] };
const SCHEMA_ELEMENT: RequiredFields = RequiredFields { name: "SchemaElement", required: &[4], inside: &[] };
const SORTING_COLUMN: RequiredFields = RequiredFields { name: "SortingColumn", required: &[1, 2, 3], inside: &[] };
const ENCODING_STATS: RequiredFields = RequiredFields { name: "PageEncodingStats", required: &[1, 2, 3], inside: &[] };

const COLUMN: RequiredFields = RequiredFields {
    name: "ColumnMetaData",
    required: &[1, 2, 3, 4, 5, 6, 7, 9],
    inside: &[(8, &KEY_VALUE), (13, &ENCODING_STATS)],
};

const CHUNK: RequiredFields = RequiredFields { name: "ColumnChunk", required: &[2, 3], inside: &[(3, &COLUMN)] };
const GROUP: RequiredFields =
    RequiredFields { name: "RowGroup", required: &[1, 2, 3], inside: &[(1, &CHUNK), (4, &SORTING_COLUMN)] };

const FILE: RequiredFields = RequiredFields {
    name: "FileMetaData",
    required: &[1, 2, 3, 4],
    inside: &[(2, &SCHEMA_ELEMENT), (4, &GROUP), (5, &FILE_KEY_VALUE)],
};

/// Refuses a footer that lacks a required field (`FILE`). The footer has passed `thrift_form::is_unambiguous`.
pub fn require_fields(footer: &[u8]) -> Result<()> {
    let mut lacking = None;
    check_struct(&mut Scan::new(footer, 0), &FILE, &mut lacking);
    match lacking {
        Some((name, id)) => {
            let expected = format!("field {id} of {name}, without which some engine does not open the file");
            Err(Fault::new("parquet_ambiguous", "", expected, "none"))
        }
        None => Ok(()),
    }
}

/// Reads a struct, and sets `lacking` to the first required field that it or a struct inside it lacks.
fn check_struct(scan: &mut Scan<'_>, wanted: &RequiredFields, lacking: &mut Option<(&'static str, i16)>) -> Option<()> {
    let mut seen = Vec::new();
    scan.each_field(|scan, id, wire| {
        seen.push(id);
        let Some((_, inner)) = wanted.inside.iter().find(|(known, _)| *known == id) else { return Some(false) };
        let count = if wire == LIST { scan.list_length()? } else { 1 };
        for _ in 0..count {
            check_struct(scan, inner, lacking)?;
        }
        Some(true)
    })?;
    if let Some(id) = wanted.required.iter().find(|id| !seen.contains(id)) {
        lacking.get_or_insert((wanted.name, *id));
    }
    Some(())
}
