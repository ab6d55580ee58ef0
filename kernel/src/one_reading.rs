//! What engines read in different ways is refused: the rows that were digested must be those that every reader sees.

use crate::annotations::require_annotations;
use crate::error::{Fault, Result};
use crate::headers::{
    DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE, PageHeader, SCHEMA_DEPTH_MAX, chunk_end, chunk_start, header,
};
use crate::resolve::joined;
use crate::thrift::{BINARY, I32, I64, LIST, STRUCT, Scan, physical_number};
use crate::zstd_frames;
use bytes::Bytes;
use parquet::basic::{Compression, ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use parquet::schema::types::Type as Element;
use std::collections::HashSet;

/// The beginning of a stream that has no name, no comment and no fields of its own.
const GZIP: [u8; 4] = [0x1f, 0x8b, 8, 0];
/// `Encoding` of the format.
const PLAIN: i64 = 0;
pub const PLAIN_DICTIONARY: i64 = 2;
const RLE: i64 = 3;
const BIT_PACKED: i64 = 4;
pub const MAGIC_BYTES: usize = 4;

/// What a field of Parquet's own structures is. Our decoder takes a field of another wire type, others pass it over.
pub enum Kind {
    Bool,
    Byte,
    I16,
    I32,
    I64,
    Binary,
    List(&'static Kind),
    Struct(&'static [(i16, Kind)]),
    /// A struct that has one field at most.
    One(&'static [(i16, Kind)]),
}

pub use Kind::{Binary, Bool, Byte, I16 as Short, I32 as Int, I64 as Long, List, One, Struct};

pub const EMPTY: Kind = Struct(&[]);
const DECIMAL: Kind = Struct(&[(1, Int), (2, Int)]);
const TIME: Kind = Struct(&[(1, Bool), (2, One(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]))]);
const LOGICAL: Kind = One(&[(5, DECIMAL), (7, TIME), (8, TIME), (10, Struct(&[(1, Byte), (2, Bool)]))]);
const ELEMENT: Kind = Struct(&[
    (1, Int),
    (2, Int),
    (3, Int),
    (4, Binary),
    (5, Int),
    (6, Int),
    (7, Int),
    (8, Int),
    (9, Int),
    (10, LOGICAL),
]);
const PAIR: Kind = Struct(&[(1, Binary), (2, Binary)]);
const STATISTICS: Kind =
    Struct(&[(1, Binary), (2, Binary), (3, Long), (4, Long), (5, Binary), (6, Binary), (7, Bool), (8, Bool)]);
const COLUMN: Kind = Struct(&[
    (1, Int),
    (2, List(&Int)),
    (3, List(&Binary)),
    (4, Int),
    (5, Long),
    (6, Long),
    (7, Long),
    (8, List(&PAIR)),
    (9, Long),
    (10, Long),
    (11, Long),
    (12, STATISTICS),
    (13, List(&Struct(&[(1, Int), (2, Int), (3, Int)]))),
    (14, Long),
    (15, Int),
    (16, Struct(&[(1, Long), (2, List(&Long)), (3, List(&Long))])),
    (17, EMPTY),
]);
const CHUNK: Kind =
    Struct(&[(1, Binary), (2, Long), (3, COLUMN), (4, Long), (5, Int), (6, Long), (7, Int), (8, EMPTY), (9, Binary)]);
const GROUP: Kind = Struct(&[
    (1, List(&CHUNK)),
    (2, Long),
    (3, Long),
    (4, List(&Struct(&[(1, Int), (2, Bool), (3, Bool)]))),
    (5, Long),
    (6, Long),
    (7, Short),
]);
const FILE: Kind = Struct(&[
    (1, Int),
    (2, List(&ELEMENT)),
    (3, Long),
    (4, List(&GROUP)),
    (5, List(&PAIR)),
    (6, Binary),
    (7, List(&One(&[(1, EMPTY)]))),
    (8, EMPTY),
    (9, Binary),
]);
const PAGE: Kind = Struct(&[
    (1, Int),
    (2, Int),
    (3, Int),
    (4, Int),
    (5, Struct(&[(1, Int), (2, Int), (3, Int), (4, Int), (5, STATISTICS)])),
    (6, EMPTY),
    (7, Struct(&[(1, Int), (2, Int), (3, Bool)])),
    (8, Struct(&[(1, Int), (2, Int), (3, Int), (4, Int), (5, Int), (6, Int), (7, Bool), (8, STATISTICS)])),
]);

impl Kind {
    fn wires(&self) -> &'static [u8] {
        match self {
            Bool => &[1, 2],
            Byte => &[3],
            Short => &[4],
            Int => &[I32],
            Long => &[I64],
            Binary => &[BINARY],
            List(_) => &[LIST],
            Struct(_) | One(_) => &[STRUCT],
        }
    }
}

/// Whether a value is spelled in the one way that every parser understands alike.
pub fn is_plain(scan: &mut Scan<'_>, kind: &Kind) -> Option<bool> {
    let (fields, most) = match kind {
        List(inner) => return each_is_plain(scan, inner),
        Struct(fields) => (fields, usize::MAX),
        One(fields) => (fields, 1),
        _ => return None,
    };
    let (mut last, mut count, mut plain) = (0, 0, true);
    scan.fields(|scan, id, wire| {
        // In order, so that none stands there twice: the first counts for some, the last for others.
        plain &= id > last;
        (last, count) = (id, count + 1);
        let Some((_, known)) = fields.iter().find(|(known, _)| *known == id) else { return Some(false) };
        plain &= known.wires().contains(&wire);
        if plain && matches!(known, List(_) | Struct(_) | One(_)) {
            plain &= is_plain(scan, known)?;
            return Some(true);
        }
        Some(false)
    })?;
    Some(plain && count <= most)
}

fn each_is_plain(scan: &mut Scan<'_>, inner: &Kind) -> Option<bool> {
    let (length, wire) = scan.list()?;
    let mut plain = length == 0 || inner.wires().contains(&wire);
    for _ in 0..length {
        match inner {
            Struct(_) | One(_) if plain => plain &= is_plain(scan, inner)?,
            _ => scan.element(wire)?,
        }
    }
    Some(plain)
}

/// What the footer says of a row group and our decoder does not tell.
#[derive(Default)]
struct Group {
    size: Option<i64>,
    columns: Vec<Column>,
}

#[derive(Default)]
struct Column {
    path: Vec<Vec<u8>>,
    physical: Option<i64>,
    elsewhere: bool,
    encrypted: bool,
}

/// The row groups of a footer that is spelled plainly.
fn groups(footer: &[u8]) -> Option<Vec<Group>> {
    let mut found = Vec::new();
    Scan::new(footer, 0).fields(|scan, id, _| {
        if id == 4 {
            let (length, _) = scan.list()?;
            for _ in 0..length {
                found.push(group(scan)?);
            }
        }
        Some(id == 4)
    })?;
    Some(found)
}

fn group(scan: &mut Scan<'_>) -> Option<Group> {
    let mut found = Group::default();
    scan.fields(|scan, id, _| {
        match id {
            1 => {
                let (length, _) = scan.list()?;
                for _ in 0..length {
                    found.columns.push(column(scan)?);
                }
            }
            6 => found.size = Some(scan.integer()?),
            _ => return Some(false),
        }
        Some(true)
    })?;
    Some(found)
}

fn column(scan: &mut Scan<'_>) -> Option<Column> {
    let mut found = Column::default();
    scan.fields(|scan, id, _| {
        found.elsewhere |= id == 1;
        found.encrypted |= matches!(id, 8 | 9);
        if id != 3 {
            return Some(false);
        }
        scan.fields(|scan, id, _| {
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

/// Refuses a file that our decoder and other engines' would read as different rows, or that only ours would read.
pub fn require_one_reading(data: &Bytes, metadata: &ParquetMetaData) -> Result<()> {
    let start = footer_start(data).ok_or_else(|| odd("", "a footer", "none"))?;
    let footer = &data[start..data.len() - 2 * MAGIC_BYTES];
    if is_plain(&mut Scan::new(footer, 0), &FILE) != Some(true) {
        return Err(odd("", "a footer whose fields stand in order, once, and with their types", "another"));
    }
    require_annotations(footer)?;
    require_names("", metadata.file_metadata().schema_descr().root_schema())?;
    if metadata.file_metadata().schema_descr().num_columns() == 0 {
        return Err(odd("", "a column", "none"));
    }
    let told = groups(footer).filter(|told| told.len() == metadata.num_row_groups());
    let told = told.ok_or_else(|| odd("", "row groups", "others"))?;
    let mut ranges = Vec::new();
    for (at, (group, told)) in metadata.row_groups().iter().zip(&told).enumerate() {
        let placed = |fault: Fault| fault.in_group(at);
        require_columns(group, told).map_err(placed)?;
        for column in group.columns() {
            ranges.push(require_pages(data, group, column).map_err(placed)?);
        }
        require_found_by_splits(data, group, told).map_err(placed)?;
    }
    require_apart(ranges, start)
}

pub fn footer_start(data: &[u8]) -> Option<usize> {
    let end = data.len().checked_sub(2 * MAGIC_BYTES)?;
    let length = u32::from_le_bytes(*data.get(end..)?.first_chunk::<4>()?) as usize;
    end.checked_sub(length)
}

/// Some readers know a column by its name, whatever its id; and keys of maps are never null.
fn require_names(path: &str, element: &Element) -> Result<()> {
    let mut seen = HashSet::new();
    if !element.is_group() {
        return Ok(());
    }
    if is_map(element) && element.get_fields().iter().any(|entry| !has_required_key(entry)) {
        return Err(odd(path, "a map of required keys", "one of optional keys"));
    }
    for child in element.get_fields() {
        let place = joined(path, child.name());
        if !seen.insert(child.name()) {
            return Err(odd(&place, "each name once", "a name twice"));
        }
        require_names(&place, child)?;
    }
    Ok(())
}

fn is_map(element: &Element) -> bool {
    let info = element.get_basic_info();
    matches!(info.logical_type_ref(), Some(LogicalType::Map)) || info.converted_type() == ConvertedType::MAP
}

/// PyArrow opens no file with others.
fn has_required_key(entry: &Element) -> bool {
    let key = if entry.is_group() { entry.get_fields().first() } else { None };
    key.is_none_or(|key| key.get_basic_info().repetition() == Repetition::REQUIRED)
}

/// Some readers take a chunk by its place, others by the path that it names.
fn require_columns(group: &RowGroupMetaData, told: &Group) -> Result<()> {
    if group.num_columns() != told.columns.len() {
        return Err(odd("", "one chunk a column", "another number"));
    }
    for (column, told) in group.columns().iter().zip(&told.columns) {
        let path = column.column_path();
        let place = path.string();
        if told.elsewhere {
            return Err(odd(&place, "pages in the file itself", "the name of another file"));
        }
        if told.encrypted {
            return Err(Fault::new("parquet_encrypted", &place, "a file without encryption", "an encrypted column"));
        }
        if !path.parts().iter().map(String::as_bytes).eq(told.path.iter().map(Vec::as_slice)) {
            return Err(odd(&place, "a chunk with its column's path", "another path"));
        }
        if column.column_type() == Physical::INT96 {
            // To the microsecond for some, to the nanosecond for others.
            return Err(Fault::new("parquet_type_unsupported", &place, "a time of 64 bits", "INT96"));
        }
        if told.physical != Some(i64::from(physical_number(column.column_type()))) {
            return Err(odd(&place, "a chunk with its column's type", "another type"));
        }
    }
    Ok(())
}

/// Where the pages lie. Readers begin at one offset or the other, and end by bytes, by values or by rows.
fn require_pages(data: &Bytes, group: &RowGroupMetaData, column: &ColumnChunkMetaData) -> Result<(usize, usize)> {
    let place = column.column_path().string();
    let lie = |expected: &str, got: &str| odd(&place, expected, got);
    let (start, first) = (chunk_start(column), usize::try_from(column.data_page_offset()).unwrap_or(0));
    let end = chunk_end(data, column).ok_or_else(|| lie("pages inside the file", "others"))?;
    // A row group without rows is read by nobody, and writers put there what they like.
    let has_dictionary = column.dictionary_page_offset().is_some() && group.num_rows() != 0;
    if start < MAGIC_BYTES && group.num_rows() != 0 || has_dictionary && start >= first {
        return Err(lie("a dictionary before the data", "another order"));
    }
    let (mut at, mut values, mut pages) = (start, 0_u64, 0_u64);
    while at < end {
        if is_plain(&mut Scan::new(&data[..end], at), &PAGE) != Some(true) {
            return Err(lie("a page header whose fields stand in order, once, and with their types", "another"));
        }
        let page = header(&data[..end], at).ok_or_else(|| lie("a page header", "none"))?;
        let data_page = matches!(page.kind, DATA_PAGE | DATA_PAGE_V2);
        if !data_page && (at != start || page.kind != DICTIONARY_PAGE) || data_page && has_dictionary && at < first {
            return Err(lie("one dictionary, and data pages after it", "other pages"));
        }
        if page.kind == DICTIONARY_PAGE && ![PLAIN, PLAIN_DICTIONARY].contains(&page.encoding) {
            return Err(lie("a dictionary of plain values", "another encoding"));
        }
        if data_page && pages == 0 && has_dictionary && at != first {
            return Err(lie("the first data page where the footer says", "another place"));
        }
        require_size(&page, column.compression(), data).ok_or_else(|| lie("a page of the size it tells", "another"))?;
        let levels = (column.column_descr().max_def_level(), column.column_descr().max_rep_level());
        // Java calls levels bit-packed that are not there.
        let known = |most: i16, encoding: i64| encoding == RLE || most == 0 && encoding == BIT_PACKED;
        if page.kind == DATA_PAGE && !(known(levels.0, page.levels.0) && known(levels.1, page.levels.1)) {
            return Err(lie("levels in runs", "levels in another encoding"));
        }
        if data_page && pages == 0 && page.values == 0 && group.num_rows() != 0 && levels.1 == 0 {
            // PyArrow takes it for the end of the column; inside lists it writes such pages itself.
            return Err(lie("a first page with values", "one without any"));
        }
        if data_page {
            (values, pages) = (values.saturating_add(page.values), pages + 1);
        }
        at = page.end;
    }
    let flat = column.column_descr().max_rep_level() == 0;
    if u64::try_from(column.num_values()) != Ok(values) || flat && u64::try_from(group.num_rows()) != Ok(values) {
        return Err(Fault::new(
            "parquet_rows_lie",
            &place,
            format!("{values} values, as the pages hold"),
            format!("{} values of {} rows in the footer", column.num_values(), group.num_rows()),
        ));
    }
    Ok((start, end))
}

/// Some readers go by the size that is told, others by what they find; our decoder fills up what is short of Snappy.
/// DuckDB does not read gzip with a name, nor Java Zstandard with a large window.
fn require_size(page: &PageHeader, codec: Compression, data: &[u8]) -> Option<()> {
    let told = if codec == Compression::UNCOMPRESSED || !page.is_compressed {
        page.compressed
    } else if codec == Compression::SNAPPY {
        page.levels_size + snappy_size(packed(page, data)?)?
    } else if let Compression::GZIP(_) = codec {
        // No values need no stream.
        let is_plain = page.size == page.levels_size || packed(page, data)?.starts_with(&GZIP);
        return is_plain.then_some(());
    } else if let Compression::ZSTD(_) = codec {
        return zstd_frames::are_opened_by_all(packed(page, data)?).then_some(());
    } else {
        return Some(());
    };
    (told == page.size).then_some(())
}

/// The bytes that are compressed.
pub fn packed<'a>(page: &PageHeader, data: &'a [u8]) -> Option<&'a [u8]> {
    let size = usize::try_from(page.compressed.checked_sub(page.levels_size)?).ok()?;
    data.get(page.end.checked_sub(size)?..page.end)
}

/// What the bytes of Snappy say of their own length; no bytes are nothing.
fn snappy_size(data: &[u8]) -> Option<u64> {
    let mut size = 0;
    for (at, byte) in data.iter().enumerate().take(5) {
        size |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return Some(size);
        }
    }
    data.is_empty().then_some(0)
}

/// A reader of a part of the file takes the row groups whose middle lies there, as the footer tells begin and size.
fn require_found_by_splits(data: &Bytes, group: &RowGroupMetaData, told: &Group) -> Result<()> {
    let size: i64 = group.columns().iter().map(ColumnChunkMetaData::compressed_size).sum();
    if told.size.is_some_and(|told| told != size) {
        return Err(odd("", "a row group of the size of its columns", "another size"));
    }
    let Some(first) = group.columns().first().map(chunk_start) else { return Ok(()) };
    let middle = first.saturating_add(usize::try_from(size / 2).unwrap_or(usize::MAX));
    // A column without any page, as writers leave it where there are no rows, begins nowhere.
    let mut held = group.columns().iter().filter(|column| column.compressed_size() != 0);
    if middle >= data.len() || held.any(|column| chunk_start(column) < first) {
        return Err(odd("", "a row group that begins with its first column", "another order"));
    }
    Ok(())
}

/// Refuses a row group that readers of a part of the file do not find in any part.
///
/// Java reads every file in parts, one that is not split as well, and takes the row groups whose middle lies in a part. The
/// first part begins at `from`.
pub fn require_in_parts(data: &Bytes, metadata: &ParquetMetaData, from: usize) -> Result<()> {
    let start = footer_start(data).ok_or_else(|| odd("", "a footer", "none"))?;
    let told = groups(&data[start..data.len() - 2 * MAGIC_BYTES]);
    let told = told.filter(|told| told.len() == metadata.num_row_groups());
    let told = told.ok_or_else(|| odd("", "row groups", "others"))?;
    for (at, (group, told)) in metadata.row_groups().iter().zip(&told).enumerate() {
        let sum = || group.columns().iter().map(ColumnChunkMetaData::compressed_size).fold(0, i64::saturating_add);
        let half = usize::try_from(told.size.unwrap_or_else(sum) / 2).unwrap_or(usize::MAX);
        let middle = group.columns().first().map(|first| chunk_start(first).saturating_add(half));
        if group.num_rows() != 0 && middle.is_some_and(|middle| !(from..data.len()).contains(&middle)) {
            return Err(
                odd("", "a row group whose middle lies in a part of the file", "a middle elsewhere").in_group(at)
            );
        }
    }
    Ok(())
}

/// No byte belongs to two columns, nor to a column and the footer.
pub fn require_apart(mut ranges: Vec<(usize, usize)>, footer: usize) -> Result<()> {
    ranges.retain(|(start, end)| start < end);
    ranges.sort_unstable();
    ranges.push((footer, footer));
    if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Err(odd("", "columns that lie apart", "bytes of two columns, or of a column and the footer"));
    }
    Ok(())
}

fn odd(column: &str, expected: &str, got: &str) -> Fault {
    Fault::new("parquet_ambiguous", column, expected, got)
}
