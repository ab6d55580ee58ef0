//! Page headers, the parts of a page body, and the byte ranges of column chunks.

use crate::parquet::format::thrift::{FALSE, I32, STRUCT, Scan, TRUE};
use bytes::Bytes;
use parquet::column::page::Page;
use parquet::file::metadata::ColumnChunkMetaData;

/// Numbers of the enum `PageType` of the format.
pub const DATA_PAGE: i64 = 0;
pub const DICTIONARY_PAGE: i64 = 2;
pub const DATA_PAGE_V2: i64 = 3;
/// Numbers of the enum `Encoding` of the format.
pub const PLAIN_DICTIONARY: i64 = 2;
const RLE_DICTIONARY: i64 = 8;
/// A dictionary of at most this many bytes is small: encoding its values once per batch costs little.
const SMALL_DICTIONARY_BYTES: usize = 32_768;

/// Where the first page of a column chunk begins: its dictionary, or its first data page.
pub fn chunk_start(column: &ColumnChunkMetaData) -> usize {
    let first = column.dictionary_page_offset().filter(|offset| *offset > 0).unwrap_or(column.data_page_offset());
    usize::try_from(first).unwrap_or(usize::MAX)
}

/// Where a column chunk ends. Returns `None` if that is outside the file.
pub fn chunk_end(data: &Bytes, column: &ColumnChunkMetaData) -> Option<usize> {
    let end = chunk_start(column).checked_add(usize::try_from(column.compressed_size()).ok()?)?;
    (end <= data.len()).then_some(end)
}

/// The header of a page.
pub struct PageHeader {
    /// The number of the page's type in the enum `PageType` of the format.
    pub kind: i64,
    /// The decompressed size of the body.
    pub size: u64,
    /// The size of the body in the file.
    pub compressed: u64,
    /// For a version 2 page: whether its values are compressed.
    pub is_compressed: bool,
    /// For a version 2 page: the bytes of levels before its values.
    pub levels_size: u64,
    pub values: u64,
    pub encoding: i64,
    /// For a version 1 page: how the definition levels are encoded.
    pub definition_encoding: i64,
    /// For a version 1 page: how the repetition levels are encoded.
    pub repetition_encoding: i64,
    /// Whether the header has the fields of its page type, and of no other type.
    pub is_consistent: bool,
    /// Where the page's body ends.
    pub end: usize,
}

/// Reads the page header at position `at`. Returns `None` if it cannot be read, or if the page ends after
/// the data.
pub fn read_page_header(data: &[u8], at: usize) -> Option<PageHeader> {
    let mut scan = Scan::new(data, at);
    let (mut kind, mut size, mut compressed, mut values, mut encoding) = (0, 0, 0, 0, 0);
    let (mut definition_encoding, mut repetition_encoding) = (0, 0);
    let (mut is_compressed, mut levels_size, mut type_fields) = (true, 0, Vec::new());
    scan.each_field(|scan, id, field| match (id, field) {
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
        // The headers of a version 1 data page, a dictionary page and a version 2 data page.
        (5 | 7 | 8, STRUCT) => {
            type_fields.push(id);
            let (is_v1, is_v2) = (id == 5, id == 8);
            scan.each_field(|scan, id, field| {
                match (id, field) {
                    (1, I32) => values = scan.number(I32)?,
                    (2, I32) if !is_v2 => encoding = scan.number(I32)?,
                    (4, I32) if is_v2 => encoding = scan.number(I32)?,
                    (3, I32) if is_v1 => definition_encoding = scan.number(I32)?,
                    (4, I32) if is_v1 => repetition_encoding = scan.number(I32)?,
                    (5 | 6, I32) if is_v2 => levels_size += scan.number(I32)?,
                    (7, wire @ (TRUE | FALSE)) if is_v2 => is_compressed = wire == TRUE,
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
    let is_consistent =
        matches!((kind, &type_fields[..]), (DATA_PAGE, [5]) | (DICTIONARY_PAGE, [7]) | (DATA_PAGE_V2, [8]));
    Some(PageHeader {
        kind,
        size,
        compressed,
        is_compressed,
        levels_size,
        values,
        encoding,
        definition_encoding,
        repetition_encoding,
        is_consistent,
        end,
    })
}

/// The compressed part of a page's body: all of it, or in a version 2 page the bytes after the levels.
pub fn compressed_bytes<'a>(page: &PageHeader, data: &'a [u8]) -> Option<&'a [u8]> {
    let size = usize::try_from(page.compressed.checked_sub(page.levels_size)?).ok()?;
    data.get(page.end.checked_sub(size)?..page.end)
}

/// Splits a data page into repetition levels, definition levels and values. Returns `None` for a dictionary page, and
/// if the levels exceed the page.
pub fn split_page(page: &Page, max_repetition: i16, max_definition: i16) -> Option<(&[u8], &[u8], Bytes)> {
    match page {
        Page::DictionaryPage { .. } => None,
        Page::DataPage { buf, .. } => {
            let (repetition, rest) = split_prefixed(buf, max_repetition)?;
            let (definition, values) = split_prefixed(rest, max_definition)?;
            Some((repetition, definition, buf.slice(buf.len() - values.len()..)))
        }
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let repetition_end = *rep_levels_byte_len as usize;
            let definition_end = repetition_end.saturating_add(*def_levels_byte_len as usize);
            Some((buf.get(..repetition_end)?, buf.get(repetition_end..definition_end)?, buf.slice(definition_end..)))
        }
    }
}

/// Splits levels off the front of a version 1 page, where their length precedes them. A column whose maximum level is
/// zero stores none.
fn split_prefixed(data: &[u8], max_level: i16) -> Option<(&[u8], &[u8])> {
    if max_level == 0 {
        return Some((&[], data));
    }
    let (length, rest) = data.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// Whether a column chunk has a small dictionary, and every page uses it.
pub fn has_small_dictionary(data: &Bytes, column: &ColumnChunkMetaData) -> bool {
    most_values_in_coded_page(data, column, SMALL_DICTIONARY_BYTES).is_some()
}

/// The most values in any data page of a column chunk. Returns `None` unless a dictionary of at most `most_bytes` bytes
/// codes the values of every page.
pub fn most_values_in_coded_page(data: &Bytes, column: &ColumnChunkMetaData, most_bytes: usize) -> Option<u64> {
    let (mut at, end) = (chunk_start(column), chunk_end(data, column)?);
    let (mut has_dictionary, mut values) = (false, 0);
    while at < end {
        let page = read_page_header(&data[..end], at)?;
        match page.kind {
            DICTIONARY_PAGE => has_dictionary = page.size <= most_bytes as u64,
            _ if ![PLAIN_DICTIONARY, RLE_DICTIONARY].contains(&page.encoding) => return None,
            _ => values = values.max(page.values),
        }
        at = page.end;
    }
    has_dictionary.then_some(values)
}
