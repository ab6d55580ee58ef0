//! What a file asks of stack and memory, told by its footer and page headers before anything is decoded.

use crate::error::{Fault, Result};
use crate::schema::NESTING_DEPTH_MAX;
use crate::thrift::{I32, LIST, STRUCT, Scan};
use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use std::sync::Arc;

const FOOTER_MAX_BYTES: usize = 67_108_864;
pub const SCHEMA_ELEMENTS_MAX: usize = 100_000;
/// A list or map of the table is three levels of the file.
pub const SCHEMA_DEPTH_MAX: usize = 3 * NESTING_DEPTH_MAX + 1;
/// The largest page and the dictionary of every column of a row group, together: what is decompressed at one time.
const PAGES_MAX_BYTES: u64 = 1_073_741_824;
const BATCH_MAX_BYTES: u64 = 67_108_864;
const BATCH_MAX_ROWS: u64 = 16_384;
pub const DICTIONARY_PAGE: i64 = 2;

/// Refuses what a decoder would not bear: its own recursion follows the schema.
pub fn check_footer(data: &[u8]) -> Result<()> {
    let Some((body, magic)) = data.split_last_chunk::<4>() else { return Err(no_file("too few bytes")) };
    match magic {
        b"PAR1" => {}
        b"PARE" => return Err(encrypted()),
        _ => return Err(no_file("another ending than PAR1")),
    }
    if !data.starts_with(b"PAR1") {
        return Err(no_file("another beginning than PAR1"));
    }
    let Some((before, length)) = body.split_last_chunk::<4>() else { return Err(no_file("too few bytes")) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > FOOTER_MAX_BYTES {
        return Err(too_large("footer", FOOTER_MAX_BYTES as u64, length as u64));
    }
    let Some(start) = before.len().checked_sub(length) else { return Err(no_file("a footer longer than the file")) };
    let (mut refused, mut scan) = (None, Scan::new(before, start));
    let scanned = scan.fields(|scan, id, kind| match (id, kind) {
        (2, LIST) => {
            refused = refused.take().or(schema(scan)?);
            Some(true)
        }
        (8, STRUCT) => {
            refused.get_or_insert(encrypted());
            Some(false)
        }
        _ => Some(false),
    });
    match (refused, scanned) {
        (Some(fault), _) => Err(fault),
        (None, None) if scan.odd => Err(odd_number("")),
        (None, None) => Err(no_file("a footer that cannot be read")),
        (None, Some(())) => Ok(()),
    }
}

/// The schema's elements come one by one, each with the number of its children.
fn schema(scan: &mut Scan<'_>) -> Option<Option<Fault>> {
    let (count, kind) = scan.list()?;
    if count > SCHEMA_ELEMENTS_MAX {
        return Some(Some(too_large("schema", SCHEMA_ELEMENTS_MAX as u64, count as u64)));
    }
    if kind != STRUCT {
        return None;
    }
    let mut open: Vec<i64> = Vec::new();
    for _ in 0..count {
        let mut children = 0;
        scan.fields(|scan, id, kind| {
            if (id, kind) == (5, I32) {
                children = scan.number(I32)?;
                return Some(true);
            }
            Some(false)
        })?;
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        if open.len() > SCHEMA_DEPTH_MAX {
            let fault = Fault::new("nesting_too_deep", "", format!("at most {SCHEMA_DEPTH_MAX} levels"), "more");
            return Some(Some(fault));
        }
        while open.last().is_some_and(|left| *left <= 0) {
            open.pop();
        }
    }
    Some(None)
}

/// How many rows a batch may have, so that it stays small whatever the values; pages that are too large are refused.
pub fn batch_rows(data: &Bytes, metadata: &ParquetMetaData) -> Result<usize> {
    let mut widest = 1;
    for (at, group) in metadata.row_groups().iter().enumerate() {
        let (mut pages, mut row) = (0_u64, 0_u64);
        for column in group.columns() {
            let seen = chunk(data, column).map_err(|fault| fault.in_group(at))?;
            pages = pages.saturating_add(seen.largest).saturating_add(seen.dictionary);
            let named = if seen.dictionary > 0 { longest(data, group, column)? } else { 0 };
            row = row.saturating_add(seen.densest.max(named).saturating_mul(values_a_row(group, column)));
        }
        if pages.max(row) > PAGES_MAX_BYTES {
            return Err(too_large("row group's pages or row", PAGES_MAX_BYTES, pages.max(row)));
        }
        widest = widest.max(row);
    }
    Ok(usize::try_from((BATCH_MAX_BYTES / widest).clamp(1, BATCH_MAX_ROWS)).unwrap_or(1))
}

fn values_a_row(group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> u64 {
    let (values, rows) = (column.num_values().unsigned_abs(), group.num_rows().unsigned_abs().max(1));
    values.div_ceil(rows).max(1)
}

/// The pages of one column in one row group.
#[derive(Default)]
struct Chunk {
    largest: u64,
    dictionary: u64,
    /// The most bytes a value that any page has on average.
    densest: u64,
}

fn chunk(data: &Bytes, column: &ColumnChunkMetaData) -> Result<Chunk> {
    let path = || column.column_path().string();
    let end = chunk_end(data, column).ok_or_else(|| unreadable(&path(), "a column outside the file"))?;
    let (mut found, mut at, width) = (Chunk::default(), chunk_start(column), width(column));
    while at < end {
        let page = header(&data[..end], at).ok_or_else(|| match has_odd_number(&data[..end], at) {
            true => odd_number(&path()),
            false => unreadable(&path(), "a page header that cannot be read"),
        })?;
        if page.kind == DICTIONARY_PAGE {
            found.dictionary = found.dictionary.max(page.size);
        } else {
            // A run of a billion equal values has a few bytes in the file and eight each in memory.
            let size = page.size.max(page.values.saturating_mul(width));
            found.largest = found.largest.max(size);
            found.densest = found.densest.max(size.div_ceil(page.values.max(1)));
        }
        at = page.end;
    }
    Ok(found)
}

pub fn chunk_start(column: &ColumnChunkMetaData) -> usize {
    let first = column.dictionary_page_offset().filter(|offset| *offset > 0).unwrap_or(column.data_page_offset());
    usize::try_from(first).unwrap_or(usize::MAX)
}

pub fn chunk_end(data: &Bytes, column: &ColumnChunkMetaData) -> Option<usize> {
    let end = chunk_start(column).checked_add(usize::try_from(column.compressed_size()).ok()?)?;
    (end <= data.len()).then_some(end)
}

/// What a value has in memory at least.
fn width(column: &ColumnChunkMetaData) -> u64 {
    match column.column_type() {
        Physical::BOOLEAN => 1,
        Physical::INT32 | Physical::FLOAT | Physical::BYTE_ARRAY => 4,
        Physical::INT64 | Physical::DOUBLE => 8,
        Physical::INT96 => 12,
        Physical::FIXED_LEN_BYTE_ARRAY => column.column_descr().type_length().unsigned_abs().into(),
    }
}

pub struct PageHeader {
    pub kind: i64,
    /// When opened, and as it lies there.
    pub size: u64,
    pub compressed: u64,
    /// Whether a page of the second version has values that are to be opened, and the bytes of levels before them.
    pub is_compressed: bool,
    pub levels_size: u64,
    pub values: u64,
    /// How a page of the first version has its definition and repetition levels.
    pub levels: (i64, i64),
    pub end: usize,
}

pub fn header(data: &[u8], at: usize) -> Option<PageHeader> {
    let mut scan = Scan::new(data, at);
    let (mut kind, mut size, mut compressed, mut values, mut levels) = (0, 0, 0, 0, (0, 0));
    let (mut is_compressed, mut levels_size) = (true, 0);
    scan.fields(|scan, id, field| match (id, field) {
        (1, I32) => {
            kind = scan.number(I32)?;
            Some(true)
        }
        (2, I32) => {
            size = scan.number(I32)?;
            Some(true)
        }
        (3, I32) => {
            compressed = scan.number(I32)?;
            Some(true)
        }
        (5 | 8, STRUCT) => {
            let first = id == 5;
            scan.fields(|scan, id, field| {
                match (id, field) {
                    (1, I32) => values = scan.number(I32)?,
                    (3, I32) if first => levels.0 = scan.number(I32)?,
                    (4, I32) if first => levels.1 = scan.number(I32)?,
                    (5 | 6, I32) if !first => levels_size += scan.number(I32)?,
                    (7, wire @ (1 | 2)) if !first => is_compressed = wire == 1,
                    _ => return Some(false),
                }
                Some(true)
            })?;
            Some(true)
        }
        _ => Some(false),
    })?;
    let end = scan.at.checked_add(usize::try_from(compressed).ok()?).filter(|end| *end <= data.len())?;
    let (size, compressed) = (u64::try_from(size).ok()?, u64::try_from(compressed).ok()?);
    let (values, levels_size) = (u64::try_from(values).ok()?, u64::try_from(levels_size).ok()?);
    Some(PageHeader { kind, size, compressed, is_compressed, levels_size, values, levels, end })
}

/// The longest value of a dictionary: every row may name it.
fn longest(data: &Bytes, group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> Result<u64> {
    if column.column_type() != Physical::BYTE_ARRAY {
        return Ok(0);
    }
    let path = column.column_path().string();
    let rows = usize::try_from(group.num_rows()).map_err(|_| unreadable(&path, "a negative number of rows"))?;
    let mut pages = SerializedPageReader::new(Arc::new(data.clone()), column, rows, None)
        .map_err(|error| unreadable(&path, &error.to_string()))?;
    let first = pages.get_next_page().map_err(|error| unreadable(&path, &error.to_string()))?;
    let Some(Page::DictionaryPage { buf, .. }) = first else { return Ok(0) };
    let (mut at, mut found) = (0, 0);
    while let Some(length) = buf.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        let length = u32::from_le_bytes(*length);
        found = found.max(length);
        at = at.saturating_add(4).saturating_add(length as usize);
    }
    Ok(u64::from(found))
}

/// Whether a struct ends at a number that readers take for different ones.
fn has_odd_number(data: &[u8], at: usize) -> bool {
    let mut scan = Scan::new(data, at);
    scan.fields(|_, _, _| Some(false)).is_none() && scan.odd
}

fn odd_number(column: &str) -> Fault {
    let expected = "numbers in their shortest form, in the range of their fields";
    Fault::new("parquet_ambiguous", column, expected, "others")
}

fn no_file(got: &str) -> Fault {
    Fault::new("parquet_unreadable", "", "a Parquet file", got)
}

fn unreadable(column: &str, got: &str) -> Fault {
    Fault::new("parquet_unreadable", column, "readable pages", got)
}

fn encrypted() -> Fault {
    Fault::new("parquet_encrypted", "", "a file without encryption", "an encrypted one")
}

fn too_large(what: &str, most: u64, got: u64) -> Fault {
    Fault::new("parquet_too_large", "", format!("a {what} of at most {most}"), got.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer whose schema is this many groups, each inside the one before, and one column in the last.
    fn nested(depth: usize) -> Vec<u8> {
        let mut elements = vec![b"\x48\x01r\x15\x02\x00".to_vec()];
        elements.extend(std::iter::repeat_n(b"\x35\x00\x18\x01x\x15\x02\x00".to_vec(), depth));
        elements.push(b"\x15\x02\x25\x02\x18\x01x\x00".to_vec());
        let mut count = Vec::new();
        let mut left = elements.len();
        while left > 127 {
            count.push((left & 127) as u8 | 128);
            left >>= 7;
        }
        count.push(left as u8);
        let body = [b"\x15\x02\x19\xfc".to_vec(), count, elements.concat(), b"\x16\x00\x19\x0c\x00".to_vec()].concat();
        [b"PAR1".to_vec(), body.clone(), (body.len() as u32).to_le_bytes().to_vec(), b"PAR1".to_vec()].concat()
    }

    #[test]
    fn a_schema_may_nest_as_deep_as_a_table_and_no_deeper() {
        assert_eq!(check_footer(&nested(SCHEMA_DEPTH_MAX - 1)), Ok(()));
        assert_eq!(check_footer(&nested(SCHEMA_DEPTH_MAX)).unwrap_err().code, "nesting_too_deep");
    }

    #[test]
    fn a_schema_may_not_have_too_many_elements() {
        assert_eq!(check_footer(&nested(SCHEMA_ELEMENTS_MAX)).unwrap_err().code, "parquet_too_large");
    }

    #[test]
    fn siblings_do_not_nest() {
        let mut body = b"\x15\x02\x19\xfc\xe9\x07\x48\x01r\x15\xd0\x0f\x00".to_vec();
        (0..1_000).for_each(|_| body.extend(b"\x15\x02\x25\x02\x18\x01x\x00"));
        body.extend(b"\x16\x00\x19\x0c\x00");
        let file = [&b"PAR1"[..], &body, &(body.len() as u32).to_le_bytes(), b"PAR1"].concat();
        assert_eq!(check_footer(&file), Ok(()));
    }

    #[test]
    fn whatever_is_cut_off_is_refused() {
        let file = nested(3);
        for size in 0..file.len() {
            assert_eq!(check_footer(&file[..size]).unwrap_err().code, "parquet_unreadable");
        }
    }

    #[test]
    fn a_file_that_begins_as_another_kind_is_refused() {
        let mut file = nested(3);
        file[..4].copy_from_slice(b"Obj\x01");
        assert_eq!(check_footer(&file).unwrap_err().code, "parquet_unreadable");
    }

    #[test]
    fn an_encrypted_footer_is_told() {
        assert_eq!(check_footer(b"PARE\0\0\0\0PARE").unwrap_err().code, "parquet_encrypted");
    }

    #[test]
    fn a_page_header_is_read_and_one_that_leaves_the_file_is_not() {
        // A data page of 5 bytes that are 100 when opened, with 7 values.
        let page = b"\x15\x00\x15\xc8\x01\x15\x0a\x2c\x15\x0e\x00\x00hello";
        let found = header(page, 0).unwrap();
        assert_eq!((found.kind, found.size, found.values, found.end), (0, 100, 7, page.len()));
        assert!(header(&page[..page.len() - 1], 0).is_none());
    }
}
