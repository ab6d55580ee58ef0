//! Limits on the stack and memory that a file needs. They are checked by its footer and page headers, before anything
//! is decoded.

use crate::canonical::schema::NESTING_DEPTH_MAX;
use crate::error::{Fault, Result};
use crate::parquet::format::pages::{DICTIONARY_PAGE, chunk_end, chunk_start, read_page_header};
use crate::parquet::format::thrift::{I32, LIST, STRUCT, Scan};
use crate::parquet::guard::page_limits::{
    fits_declared_size, longest_dictionary_value, longest_row, measure_decoded_pages,
};
use bytes::Bytes;
use parquet::basic::{LogicalType, Type as Physical};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::Type;

pub const FOOTER_MAX_BYTES: usize = 67_108_864;
pub const SCHEMA_ELEMENTS_MAX: usize = 100_000;
/// A list or map of the table takes three levels of the file's schema.
pub const SCHEMA_DEPTH_MAX: usize = 3 * NESTING_DEPTH_MAX + 1;
/// The most memory for pages at one time: the sum, over the columns of a row group, of the largest page and the
/// dictionary.
const PAGES_MAX_BYTES: u64 = 1_073_741_824;
/// The format numbers row groups in 16 bits.
const ROW_GROUPS_MAX: usize = 32_767;
/// The most pages of a row group, because some bytes are kept for each page.
const PAGES_MAX: u64 = 1_000_000;
/// Numbers of the enum `Encoding` of the format.
const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
const DELTA_BYTE_ARRAY: i64 = 7;
/// The memory for one dictionary value, in addition to the value itself.
const DICTIONARY_VALUE_BYTES: u64 = 16;
/// A variant may take this many times its bytes while it is decoded, if its names and fields have one byte each.
const VARIANT_GROWTH: u64 = 16;
/// The most elements in all lists and maps of a file. A few bytes of a file can stand for any number of elements.
const ELEMENTS_MAX: u64 = 1 << 32;
/// A file with many rows may have this many elements per row, if that is more than `ELEMENTS_MAX`.
const ELEMENTS_PER_ROW: u64 = 1_024;
/// The most bytes in all byte arrays (texts and others) of a file, when they are decoded.
const TEXTS_MAX_BYTES: u64 = 1 << 38;
/// A file with many rows may have this many bytes per row, if that is more than `TEXTS_MAX_BYTES`.
const TEXT_BYTES_PER_ROW: u64 = 65_536;
/// The most bytes of a batch in which a file is decoded, unless a single row has more.
const BATCH_MAX_BYTES: u64 = 67_108_864;
/// The most rows of a batch.
const BATCH_MAX_ROWS: u64 = 16_384;

/// Refuses a footer beyond the limits, and encrypted files. The depth of the schema is limited, because decoders
/// recurse that deep.
pub fn check_footer(data: &[u8]) -> Result<()> {
    let Some((body, magic)) = data.split_last_chunk::<4>() else { return Err(not_parquet("too few bytes")) };
    match magic {
        b"PAR1" => {}
        b"PARE" => return Err(encrypted()),
        _ => return Err(not_parquet("a file that does not end with PAR1")),
    }
    if !data.starts_with(b"PAR1") {
        return Err(not_parquet("a file that does not begin with PAR1"));
    }
    let Some((before, length)) = body.split_last_chunk::<4>() else { return Err(not_parquet("too few bytes")) };
    let length = u32::from_le_bytes(*length) as usize;
    if length > FOOTER_MAX_BYTES {
        return Err(too_large("footer", FOOTER_MAX_BYTES as u64, length as u64));
    }
    let Some(start) = before.len().checked_sub(length) else {
        return Err(not_parquet("a footer longer than the file"));
    };
    let (mut refused, mut scan) = (None, Scan::new(before, start));
    let scanned = scan.each_field(|scan, id, kind| match (id, kind) {
        (2, LIST) => {
            refused = refused.take().or(check_schema(scan)?);
            Some(true)
        }
        (4, LIST) => {
            let groups = scan.peek_list_length()?;
            if groups > ROW_GROUPS_MAX {
                let fault = too_large("number of row groups", ROW_GROUPS_MAX as u64, groups as u64);
                refused.get_or_insert(fault);
            }
            Some(false)
        }
        (8, STRUCT) => {
            refused.get_or_insert(encrypted());
            Some(false)
        }
        _ => Some(false),
    });
    match (refused, scanned) {
        (Some(fault), _) => Err(fault),
        (None, None) if scan.is_ambiguous => Err(ambiguous_number("")),
        (None, None) => Err(not_parquet("a footer that cannot be read")),
        (None, Some(())) => Ok(()),
    }
}

/// Checks the schema's elements, which are listed in order, each with its number of children. The inner option is a
/// fault. The outer option is `None` if the elements cannot be parsed.
fn check_schema(scan: &mut Scan<'_>) -> Option<Option<Fault>> {
    let (count, kind) = scan.list()?;
    if count > SCHEMA_ELEMENTS_MAX {
        return Some(Some(too_large("schema", SCHEMA_ELEMENTS_MAX as u64, count as u64)));
    }
    if kind != STRUCT {
        return None;
    }
    // The number of children still to come, of each group that is open.
    let mut open: Vec<i64> = Vec::new();
    for at in 1..=count {
        let mut children = 0;
        scan.each_field(|scan, id, kind| {
            if (id, kind) == (5, I32) {
                children = scan.number(I32)?;
                return Some(true);
            }
            Some(false)
        })?;
        // A decoder reserves memory for this many children.
        if usize::try_from(children).is_ok_and(|children| children > count - at) {
            return None;
        }
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

/// Refuses a file with too many elements in its lists and maps.
pub fn require_elements(metadata: &ParquetMetaData) -> Result<()> {
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let nested = columns.filter(|column| column.column_descr().max_rep_level() > 0);
    let elements = nested.map(|column| column.num_values().unsigned_abs()).fold(0, u64::saturating_add);
    let most = elements_max(count_rows(metadata));
    if elements > most { Err(too_large("number of elements", most, elements)) } else { Ok(()) }
}

/// Refuses a file with too many bytes of byte arrays (texts and others). `bytes` is their number so far.
pub fn require_texts(metadata: &ParquetMetaData, bytes: u64) -> Result<()> {
    let most = texts_max(count_rows(metadata));
    if bytes > most { Err(too_large("number of bytes of text", most, bytes)) } else { Ok(()) }
}

fn elements_max(rows: u64) -> u64 {
    rows.saturating_mul(ELEMENTS_PER_ROW).max(ELEMENTS_MAX)
}

fn texts_max(rows: u64) -> u64 {
    rows.saturating_mul(TEXT_BYTES_PER_ROW).max(TEXTS_MAX_BYTES)
}

fn count_rows(metadata: &ParquetMetaData) -> u64 {
    metadata.row_groups().iter().map(|group| group.num_rows().unsigned_abs()).fold(0, u64::saturating_add)
}

/// Chooses the rows per batch, so that a batch stays small. Refuses pages beyond the limits.
pub fn choose_batch_rows(data: &Bytes, metadata: &ParquetMetaData) -> Result<usize> {
    let mut widest_row = 1;
    for (at, group) in metadata.row_groups().iter().enumerate() {
        let row = estimate_row_bytes(data, group).map_err(|fault| fault.in_group(at))?;
        widest_row = widest_row.max(row);
    }
    Ok(usize::try_from((BATCH_MAX_BYTES / widest_row).clamp(1, BATCH_MAX_ROWS)).unwrap_or(1))
}

/// Estimates the memory of one row of the group, from the average number of elements per row. If all elements together
/// need too much memory, the elements of the longest row are counted instead. Refuses pages and rows beyond the limits.
fn estimate_row_bytes(data: &Bytes, group: &RowGroupMetaData) -> Result<u64> {
    let chunks =
        group.columns().iter().map(|column| measure_chunk(data, group, column)).collect::<Result<Vec<ChunkSizes>>>()?;
    let root = group.schema_descr().root_schema();
    let page_bytes = group.columns().iter().zip(&chunks).fold(0, |sum: u64, (column, chunk)| {
        let path = column.column_path().parts();
        let growth = if path.len() > 1 && is_in_variant(root, path) { VARIANT_GROWTH } else { 1 };
        sum.saturating_add(chunk.largest.saturating_add(chunk.dictionary).saturating_mul(growth))
    });
    let page_count = chunks.iter().map(|chunk| chunk.pages).sum::<u64>();
    if page_bytes > PAGES_MAX_BYTES {
        return Err(too_large("row group's pages", PAGES_MAX_BYTES, page_bytes));
    }
    if page_count > PAGES_MAX {
        return Err(too_large("row group's number of pages", PAGES_MAX, page_count));
    }
    // `nested`: the bytes of all elements of lists and maps. `widths`: for each column, the bytes of a value.
    let (mut nested, mut widths) = (0_u64, Vec::with_capacity(chunks.len()));
    for (column, chunk) in group.columns().iter().zip(&chunks) {
        let longest = if chunk.dictionary > 0 { longest_dictionary_value(data, group, column)? } else { 0 };
        let width = chunk.greatest_average.max(longest);
        if column.column_descr().max_rep_level() > 0 {
            nested = nested.saturating_add(width.saturating_mul(column.num_values().unsigned_abs()));
        }
        widths.push(width);
    }
    let mut row = 0_u64;
    for (column, width) in group.columns().iter().zip(widths) {
        // In the worst case one row has all elements. If even that row fits into memory, the average is enough.
        let values = if nested > PAGES_MAX_BYTES && column.column_descr().max_rep_level() > 0 {
            longest_row(data, group, column)?
        } else {
            values_per_row(group, column)
        };
        row = row.saturating_add(width.saturating_mul(values));
    }
    if row > PAGES_MAX_BYTES { Err(too_large("row", PAGES_MAX_BYTES, row)) } else { Ok(row) }
}

/// Whether a group on the path to a leaf is annotated as a variant.
fn is_in_variant(node: &Type, path: &[String]) -> bool {
    if matches!(node.get_basic_info().logical_type_ref(), Some(LogicalType::Variant { .. })) {
        return true;
    }
    let Some((name, rest)) = path.split_first() else { return false };
    let children = if node.is_group() { node.get_fields() } else { &[] };
    children.iter().find(|child| child.name() == name).is_some_and(|child| is_in_variant(child, rest))
}

fn values_per_row(group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> u64 {
    let (values, rows) = (column.num_values().unsigned_abs(), group.num_rows().unsigned_abs().max(1));
    values.div_ceil(rows).max(1)
}

/// The page sizes of one column in one row group.
#[derive(Default)]
struct ChunkSizes {
    /// The number of pages.
    pages: u64,
    /// The memory of the largest data page.
    largest: u64,
    /// The memory of the dictionary.
    dictionary: u64,
    /// The average bytes of a value in a page, for the page with the greatest average.
    greatest_average: u64,
}

impl ChunkSizes {
    fn add(&mut self, size: u64, values: u64) {
        self.largest = self.largest.max(size);
        self.greatest_average = self.greatest_average.max(size.div_ceil(values.max(1)));
    }
}

/// Measures the pages of a column chunk by their headers. Refuses headers that cannot be read or are ambiguous, and
/// pages larger than their declared size.
fn measure_chunk(data: &Bytes, group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> Result<ChunkSizes> {
    let path = || column.column_path().string();
    let end = chunk_end(data, column).ok_or_else(|| unreadable(&path(), "a column outside the file"))?;
    let (mut found, mut at, width) = (ChunkSizes::default(), chunk_start(column), value_width(column));
    let mut is_delta_encoded = false;
    while at < end {
        let page =
            read_page_header(&data[..end], at).ok_or_else(|| match ends_at_ambiguous_number(&data[..end], at) {
                true => ambiguous_number(&path()),
                false => unreadable(&path(), "a page header that cannot be read"),
            })?;
        if !page.is_consistent {
            let expected = "a page header of one page type";
            return Err(Fault::new("parquet_ambiguous", &path(), expected, "one of two page types"));
        }
        if !fits_declared_size(&page, column.compression(), data) {
            return Err(unreadable(&path(), "a page larger than its declared size"));
        }
        found.pages += 1;
        if page.kind == DICTIONARY_PAGE {
            // Beside each value, its position and rank are kept.
            let size = page.size.saturating_add(page.values.saturating_mul(DICTIONARY_VALUE_BYTES));
            found.dictionary = found.dictionary.max(size);
        } else {
            // A run of a billion equal values takes a few bytes in the file, and eight bytes each in memory.
            found.add(page.size.max(page.values.saturating_mul(width)), page.values);
            is_delta_encoded |= [DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY].contains(&page.encoding);
        }
        at = page.end;
    }
    if is_delta_encoded && found.pages <= PAGES_MAX && found.largest <= PAGES_MAX_BYTES {
        measure_decoded_pages(data, group, column)?.into_iter().for_each(|(values, size)| found.add(size, values));
    }
    Ok(found)
}

/// The least memory of a value.
fn value_width(column: &ColumnChunkMetaData) -> u64 {
    match column.column_type() {
        Physical::BOOLEAN => 1,
        Physical::INT32 | Physical::FLOAT | Physical::BYTE_ARRAY => 4,
        Physical::INT64 | Physical::DOUBLE => 8,
        Physical::INT96 => 12,
        Physical::FIXED_LEN_BYTE_ARRAY => column.column_descr().type_length().unsigned_abs().into(),
    }
}

/// Whether the struct at `at` cannot be read because of a number that readers interpret differently.
fn ends_at_ambiguous_number(data: &[u8], at: usize) -> bool {
    let mut scan = Scan::new(data, at);
    scan.each_field(|_, _, _| Some(false)).is_none() && scan.is_ambiguous
}

fn ambiguous_number(column: &str) -> Fault {
    let expected = "numbers in their shortest form, in the range of their fields";
    Fault::new("parquet_ambiguous", column, expected, "different ones")
}

fn not_parquet(got: &str) -> Fault {
    Fault::new("parquet_unreadable", "", "a Parquet file", got)
}

fn unreadable(column: &str, got: &str) -> Fault {
    Fault::new("parquet_unreadable", column, "readable pages", got)
}

fn encrypted() -> Fault {
    Fault::new("parquet_encrypted", "", "a file without encryption", "an encrypted one")
}

pub fn too_large(what: &str, most: u64, got: u64) -> Fault {
    Fault::new("parquet_too_large", "", format!("a {what} of at most {most}"), got.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer whose schema is this many nested groups, with one column in the last.
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
    fn a_group_has_no_more_children_than_there_are_elements() {
        // The root declares one, two and 2^31 - 1 children, and has one.
        for (children, read) in
            [(b"\x15\x02".as_slice(), true), (b"\x15\x04", false), (b"\x15\xfe\xff\xff\xff\x0f", false)]
        {
            let leaf = b"\x00\x15\x02\x25\x02\x18\x01x\x00\x16\x00\x19\x0c\x00";
            let body = [b"\x15\x02\x19\x2c\x48\x01r", children, leaf].concat();
            let file = [&b"PAR1"[..], &body, &(body.len() as u32).to_le_bytes(), b"PAR1"].concat();
            assert_eq!(check_footer(&file).is_ok(), read, "{children:?}");
        }
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
    fn a_truncated_file_is_refused() {
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
    fn an_encrypted_footer_is_refused() {
        assert_eq!(check_footer(b"PARE\0\0\0\0PARE").unwrap_err().code, "parquet_encrypted");
    }

    #[test]
    fn many_rows_may_have_many_elements_and_much_text() {
        assert_eq!((elements_max(0), elements_max(1 << 30)), (1 << 32, 1 << 40));
        assert_eq!((texts_max(0), texts_max(1 << 30)), (1 << 38, 1 << 46));
        assert_eq!((elements_max(u64::MAX), texts_max(u64::MAX)), (u64::MAX, u64::MAX));
    }

    #[test]
    fn a_page_header_is_read_only_if_the_page_ends_inside_the_file() {
        // A data page of 5 bytes that decompress to 100, with 7 values.
        let page = b"\x15\x00\x15\xc8\x01\x15\x0a\x2c\x15\x0e\x00\x00hello";
        let found = read_page_header(page, 0).unwrap();
        assert_eq!((found.kind, found.size, found.values, found.end), (0, 100, 7, page.len()));
        assert!(read_page_header(&page[..page.len() - 1], 0).is_none());
    }
}
