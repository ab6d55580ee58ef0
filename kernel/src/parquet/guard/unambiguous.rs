//! Refuses files that engines read differently, so that every reader sees the rows that were digested.

use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::join_path;
use crate::parquet::format::pages::{
    DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE, PLAIN_DICTIONARY, PageHeader, chunk_end, chunk_start, compressed_bytes,
    read_page_header,
};
use crate::parquet::format::thrift::{Scan, physical_number};
use crate::parquet::format::thrift_form::{FILE, MAGIC_BYTES, PAGE, TRAILER_BYTES, footer_start, is_unambiguous};
use crate::parquet::format::zstd_frames;
use crate::parquet::guard::annotations::require_annotations;
use crate::parquet::guard::footer_limits::SCHEMA_DEPTH_MAX;
use bytes::Bytes;
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::Type as Element;
use std::collections::HashSet;

/// The start of a gzip stream without name, comment or extra fields.
const GZIP: [u8; 4] = [0x1f, 0x8b, 8, 0];
/// Numbers of the enum `Encoding` of the format.
const PLAIN: i64 = 0;
const RLE: i64 = 3;
const BIT_PACKED: i64 = 4;

/// Facts that the footer declares about a row group, but that the `parquet` crate does not expose.
#[derive(Default)]
struct DeclaredGroup {
    size: Option<i64>,
    columns: Vec<DeclaredColumn>,
}

/// What the footer declares about a column chunk.
#[derive(Default)]
struct DeclaredColumn {
    path: Vec<Vec<u8>>,
    /// The number of the physical type.
    physical: Option<i64>,
    /// Whether its pages are in another file.
    is_elsewhere: bool,
    is_encrypted: bool,
}

/// Reads the row groups of a footer that `is_unambiguous` accepted before.
fn read_groups(footer: &[u8]) -> Option<Vec<DeclaredGroup>> {
    let mut found = Vec::new();
    Scan::new(footer, 0).each_field(|scan, id, _| {
        // Field 4 of `FileMetaData` is the list of row groups.
        if id != 4 {
            return Some(false);
        }
        for _ in 0..scan.list_length()? {
            found.push(read_group(scan)?);
        }
        Some(true)
    })?;
    Some(found)
}

fn read_group(scan: &mut Scan<'_>) -> Option<DeclaredGroup> {
    let mut found = DeclaredGroup::default();
    scan.each_field(|scan, id, _| {
        match id {
            1 => {
                for _ in 0..scan.list_length()? {
                    found.columns.push(read_column(scan)?);
                }
            }
            6 => found.size = Some(scan.integer()?),
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

fn read_column(scan: &mut Scan<'_>) -> Option<DeclaredColumn> {
    let mut found = DeclaredColumn::default();
    scan.each_field(|scan, id, _| {
        found.is_elsewhere |= id == 1;
        found.is_encrypted |= matches!(id, 8 | 9);
        if id != 3 {
            return Some(false);
        }
        scan.each_field(|scan, id, _| {
            match id {
                1 => found.physical = Some(scan.integer()?),
                3 => {
                    for _ in 0..scan.short_list(SCHEMA_DEPTH_MAX + 1)? {
                        found.path.push(scan.binary()?.to_vec());
                    }
                }
                _ => return Some(false),
            }
            Some(true)
        })?;
        Some(true)
    })?;
    Some(found)
}

/// Refuses a file that other engines read as different rows, or do not read.
pub fn require_unambiguous(data: &Bytes, metadata: &ParquetMetaData) -> Result<()> {
    let start = footer_start(data).ok_or_else(|| ambiguous("", "a footer", "none"))?;
    let footer = &data[start..data.len() - TRAILER_BYTES];
    if is_unambiguous(&mut Scan::new(footer, 0), &FILE) != Some(true) {
        return Err(ambiguous(
            "",
            "a footer with its fields in ascending order, each once, with their types",
            "a different one",
        ));
    }
    require_annotations(footer)?;
    require_names("", metadata.file_metadata().schema_descr().root_schema())?;
    if metadata.file_metadata().schema_descr().num_columns() == 0 {
        return Err(ambiguous("", "a column", "none"));
    }
    let declared = read_groups(footer).filter(|declared| declared.len() == metadata.num_row_groups());
    let declared = declared.ok_or_else(|| ambiguous("", "row groups", "different ones"))?;
    let mut ranges = Vec::new();
    for (at, (group, declared)) in metadata.row_groups().iter().zip(&declared).enumerate() {
        let in_group = |fault: Fault| fault.in_group(at);
        require_columns(group, declared).map_err(in_group)?;
        for column in group.columns() {
            ranges.push(require_pages(data, group, column).map_err(in_group)?);
        }
        require_row_group_extent(data, group, declared).map_err(in_group)?;
    }
    require_no_overlap(ranges, start)
}

/// Requires distinct names, because some readers find columns by name. Also requires that map keys are not optional.
fn require_names(path: &str, element: &Element) -> Result<()> {
    let mut seen = HashSet::new();
    if !element.is_group() {
        return Ok(());
    }
    if is_map(element) && element.get_fields().iter().any(|entry| !has_required_key(entry)) {
        return Err(ambiguous(path, "a map of required keys", "a map of optional keys"));
    }
    for child in element.get_fields() {
        let child_path = join_path(path, child.name());
        if !seen.insert(child.name()) {
            return Err(ambiguous(&child_path, "each name once", "a name twice"));
        }
        require_names(&child_path, child)?;
    }
    Ok(())
}

fn is_map(element: &Element) -> bool {
    let info = element.get_basic_info();
    matches!(info.logical_type_ref(), Some(LogicalType::Map)) || info.converted_type() == ConvertedType::MAP
}

/// PyArrow does not open a file with optional keys.
fn has_required_key(entry: &Element) -> bool {
    let key = if entry.is_group() { entry.get_fields().first() } else { None };
    key.is_none_or(|key| key.get_basic_info().repetition() == Repetition::REQUIRED)
}

/// Requires that each chunk is at its column's position and has its column's path: some readers find chunks by
/// position, others by path.
fn require_columns(group: &RowGroupMetaData, declared: &DeclaredGroup) -> Result<()> {
    if group.num_columns() != declared.columns.len() {
        return Err(ambiguous("", "one chunk per column", "another number"));
    }
    for (column, declared) in group.columns().iter().zip(&declared.columns) {
        let path = column.column_path();
        let place = path.string();
        if declared.is_elsewhere {
            return Err(ambiguous(&place, "pages in the file itself", "the name of another file"));
        }
        if declared.is_encrypted {
            return Err(Fault::new("parquet_encrypted", &place, "a file without encryption", "an encrypted column"));
        }
        if !path.parts().iter().map(String::as_bytes).eq(declared.path.iter().map(Vec::as_slice)) {
            return Err(ambiguous(&place, "a chunk with its column's path", "another path"));
        }
        if column.column_type() == Physical::INT96 {
            // Some readers read it in microseconds, others in nanoseconds.
            return Err(Fault::new("parquet_type_unsupported", &place, "a time of 64 bits", "INT96"));
        }
        if declared.physical != Some(i64::from(physical_number(column.column_type()))) {
            return Err(ambiguous(&place, "a chunk with its column's type", "another type"));
        }
    }
    Ok(())
}

/// Checks the pages of a column chunk, and returns their byte range. Readers begin at different offsets, and some end
/// after the declared bytes, others after the declared values or rows.
fn require_pages(data: &Bytes, group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> Result<(usize, usize)> {
    let place = column.column_path().string();
    let refuse = |expected: &str, got: &str| ambiguous(&place, expected, got);
    let (start, first) = (chunk_start(column), usize::try_from(column.data_page_offset()).unwrap_or(0));
    let end = chunk_end(data, column).ok_or_else(|| refuse("pages inside the file", "different ones"))?;
    // A row group without rows may have any offset: no reader reads such a row group, and writers differ.
    let has_dictionary = column.dictionary_page_offset().is_some() && group.num_rows() != 0;
    if start < MAGIC_BYTES && group.num_rows() != 0 || has_dictionary && start >= first {
        return Err(refuse("a dictionary before the data", "another order"));
    }
    let (mut at, mut values, mut pages) = (start, 0_u64, 0_u64);
    while at < end {
        if is_unambiguous(&mut Scan::new(&data[..end], at), &PAGE) != Some(true) {
            return Err(refuse(
                "a page header with its fields in ascending order, each once, with their types",
                "a different one",
            ));
        }
        let page = read_page_header(&data[..end], at).ok_or_else(|| refuse("a page header", "none"))?;
        let is_data_page = matches!(page.kind, DATA_PAGE | DATA_PAGE_V2);
        if !is_data_page && (at != start || page.kind != DICTIONARY_PAGE)
            || is_data_page && has_dictionary && at < first
        {
            return Err(refuse("one dictionary, and data pages after it", "other pages"));
        }
        if page.kind == DICTIONARY_PAGE && ![PLAIN, PLAIN_DICTIONARY].contains(&page.encoding) {
            return Err(refuse("a dictionary of plain values", "another encoding"));
        }
        if is_data_page && pages == 0 && has_dictionary && at != first {
            return Err(refuse("the first data page at the declared offset", "another place"));
        }
        require_size(&page, column.compression(), data)
            .ok_or_else(|| refuse("a page of its declared size", "a different one"))?;
        let (max_definition, max_repetition) =
            (column.column_descr().max_def_level(), column.column_descr().max_rep_level());
        // Java writers name bit-packed as the encoding of levels that a column does not have.
        let is_known = |max_level: i16, encoding: i64| encoding == RLE || max_level == 0 && encoding == BIT_PACKED;
        let has_known_levels =
            is_known(max_definition, page.definition_encoding) && is_known(max_repetition, page.repetition_encoding);
        if page.kind == DATA_PAGE && !has_known_levels {
            return Err(refuse("levels in runs", "levels in another encoding"));
        }
        if is_data_page && pages == 0 && page.values == 0 && group.num_rows() != 0 && max_repetition == 0 {
            // PyArrow takes an empty page for the end of the column. Inside lists PyArrow writes such pages itself.
            return Err(refuse("a first page with values", "one without any"));
        }
        if is_data_page {
            (values, pages) = (values.saturating_add(page.values), pages + 1);
        }
        at = page.end;
    }
    let is_flat = column.column_descr().max_rep_level() == 0;
    if u64::try_from(column.num_values()) != Ok(values) || is_flat && u64::try_from(group.num_rows()) != Ok(values) {
        return Err(Fault::new(
            "parquet_rows_lie",
            &place,
            format!("{values} values, as the pages hold"),
            format!("{} values of {} rows in the footer", column.num_values(), group.num_rows()),
        ));
    }
    Ok((start, end))
}

/// Returns `None` if the page's declared size is not that of its data, as far as this is visible without decompressing.
/// Some readers go by the declared size, others by the data, and the `parquet` crate pads short Snappy data. Also
/// returns `None` for gzip with a file name, which DuckDB does not read, and for Zstandard with a large window, which
/// Java does not read.
fn require_size(page: &PageHeader, codec: Compression, data: &[u8]) -> Option<()> {
    let data_size = if codec == Compression::UNCOMPRESSED || !page.is_compressed {
        page.compressed
    } else if codec == Compression::SNAPPY {
        page.levels_size + read_snappy_size(compressed_bytes(page, data)?)?
    } else if let Compression::GZIP(_) = codec {
        // A page without values needs no stream.
        let is_readable = page.size == page.levels_size || compressed_bytes(page, data)?.starts_with(&GZIP);
        return is_readable.then_some(());
    } else if let Compression::ZSTD(_) = codec {
        return zstd_frames::are_readable_by_all(compressed_bytes(page, data)?).then_some(());
    } else {
        return Some(());
    };
    (data_size == page.size).then_some(())
}

/// The decompressed size that Snappy data declares at its start. Empty data has size zero.
fn read_snappy_size(data: &[u8]) -> Option<u64> {
    let mut size = 0;
    for (at, byte) in data.iter().enumerate().take(5) {
        size |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return Some(size);
        }
    }
    data.is_empty().then_some(0)
}

/// Requires that a row group begins with its first column, has the size of its columns, and has its middle in the file.
/// A reader of a split reads the row groups whose middle, by declared start and size, lies in the split.
fn require_row_group_extent(data: &Bytes, group: &RowGroupMetaData, declared: &DeclaredGroup) -> Result<()> {
    let size: i64 = group.columns().iter().map(ColumnChunkMetaData::compressed_size).sum();
    if declared.size.is_some_and(|declared| declared != size) {
        return Err(ambiguous("", "a row group of the size of its columns", "another size"));
    }
    let Some(first) = group.columns().first().map(chunk_start) else { return Ok(()) };
    let middle = first.saturating_add(usize::try_from(size / 2).unwrap_or(usize::MAX));
    // A column without pages, which writers leave in an empty row group, has no start.
    let mut with_pages = group.columns().iter().filter(|column| column.compressed_size() != 0);
    if middle >= data.len() || with_pages.any(|column| chunk_start(column) < first) {
        return Err(ambiguous("", "a row group that begins with its first column", "another order"));
    }
    Ok(())
}

/// Refuses a row group that readers find in no split.
///
/// Iceberg's Java library reads every file in one or more splits, and reads the row groups whose middle lies in the
/// split. The first split begins at `from`.
pub fn require_found_by_splits(data: &Bytes, metadata: &ParquetMetaData, from: usize) -> Result<()> {
    let start = footer_start(data).ok_or_else(|| ambiguous("", "a footer", "none"))?;
    let declared = read_groups(&data[start..data.len() - TRAILER_BYTES]);
    let declared = declared.filter(|declared| declared.len() == metadata.num_row_groups());
    let declared = declared.ok_or_else(|| ambiguous("", "row groups", "different ones"))?;
    for (at, (group, declared)) in metadata.row_groups().iter().zip(&declared).enumerate() {
        let sum = || group.columns().iter().map(ColumnChunkMetaData::compressed_size).fold(0, i64::saturating_add);
        let half = usize::try_from(declared.size.unwrap_or_else(sum) / 2).unwrap_or(usize::MAX);
        let middle = group.columns().first().map(|first| chunk_start(first).saturating_add(half));
        if group.num_rows() != 0 && middle.is_some_and(|middle| !(from..data.len()).contains(&middle)) {
            return Err(ambiguous(
                "",
                "a row group whose middle lies in a split of the file",
                "one outside every split",
            )
            .in_group(at));
        }
    }
    Ok(())
}

/// Refuses bytes that belong to two of these ranges (columns, indexes, filters), or to one of them and the footer. A
/// range is its start and its end, and `footer` is where the footer begins.
pub fn require_no_overlap(mut ranges: Vec<(usize, usize)>, footer: usize) -> Result<()> {
    ranges.retain(|(start, end)| start < end);
    ranges.sort_unstable();
    ranges.push((footer, footer));
    if ranges.windows(2).any(|pair| matches!(pair, [(_, end), (next_start, _)] if end > next_start)) {
        return Err(ambiguous(
            "",
            "columns that do not overlap",
            "bytes of two columns, or of a column and the footer",
        ));
    }
    Ok(())
}

fn ambiguous(column: &str, expected: &str, got: &str) -> Fault {
    Fault::new("parquet_ambiguous", column, expected, got)
}
