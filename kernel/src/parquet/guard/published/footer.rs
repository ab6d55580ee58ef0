//! Checks of a published footer: offsets and sizes of row groups, a key that changes types, and columns that engines
//! filter differently.

use crate::canonical::schema::{Field, Slot, Type};
use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::join_path;
use crate::parquet::format::pages::chunk_start;
use crate::parquet::format::thrift::Scan;
use crate::parquet::format::thrift_form::{TRAILER_BYTES, footer_start};
use crate::parquet::guard::published::required_fields::require_fields;
use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use std::collections::HashMap;

/// Refuses row groups whose offsets and sizes engines read differently. Trino reads a row group only if
/// `RowGroup.file_offset` lies in its split.
pub fn require_layout(data: &Bytes, metadata: &ParquetMetaData) -> Result<()> {
    let start = footer_start(data).ok_or_else(|| ambiguous("", "a footer", "none"))?;
    let footer = &data[start..data.len() - TRAILER_BYTES];
    require_fields(footer)?;
    require_scales(footer)?;
    let layouts = read_layouts(footer);
    let layouts = layouts.filter(|found| found.len() == metadata.num_row_groups());
    let layouts = layouts.ok_or_else(|| ambiguous("", "row groups", "different ones"))?;
    for (at, (group, layout)) in metadata.row_groups().iter().zip(&layouts).enumerate() {
        require_no_negative(layout).map_err(|fault| fault.in_group(at))?;
        require_file_offset(group, layout).map_err(|fault| fault.in_group(at))?;
        require_ordinal(at, layout).map_err(|fault| fault.in_group(at))?;
    }
    require_all_or_no_ordinals(&layouts)
}

/// What the footer declares about the position of a row group.
#[derive(Default)]
struct Layout {
    file_offset: Option<i64>,
    ordinal: Option<i64>,
    /// Sizes, counts and offsets of the row group and of its column chunks, by their names in the format.
    numbers: Vec<(&'static str, i64)>,
}

/// Field ids of `FileMetaData`.
const SCHEMA: i16 = 2;
const ROW_GROUPS: i16 = 4;
/// Field ids of `SchemaElement`.
const SCALE: i16 = 7;
const PRECISION: i16 = 8;

/// Field ids and names of sizes, counts and offsets in `RowGroup`, `ColumnChunk` and `ColumnMetaData`.
const GROUP_NUMBERS: [(i16, &str); 4] =
    [(2, "total_byte_size"), (3, "num_rows"), (5, "file_offset"), (6, "total_compressed_size")];

const CHUNK_NUMBERS: [(i16, &str); 5] = [
    (2, "file_offset"),
    (4, "offset_index_offset"),
    (5, "offset_index_length"),
    (6, "column_index_offset"),
    (7, "column_index_length"),
];

const COLUMN_NUMBERS: [(i16, &str); 8] = [
    (5, "num_values"),
    (6, "total_uncompressed_size"),
    (7, "total_compressed_size"),
    (9, "data_page_offset"),
    (10, "index_page_offset"),
    (11, "dictionary_page_offset"),
    (14, "bloom_filter_offset"),
    (15, "bloom_filter_length"),
];

fn read_layouts(footer: &[u8]) -> Option<Vec<Layout>> {
    let mut found = Vec::new();
    Scan::new(footer, 0).each_field(|scan, id, _| {
        if id != ROW_GROUPS {
            return Some(false);
        }
        for _ in 0..scan.list_length()? {
            found.push(read_layout(scan)?);
        }
        Some(true)
    })?;
    Some(found)
}

fn read_layout(scan: &mut Scan<'_>) -> Option<Layout> {
    let mut found = Layout::default();
    scan.each_field(|scan, id, _| {
        if id == 1 {
            for _ in 0..scan.list_length()? {
                read_chunk(scan, &mut found.numbers)?;
            }
            return Some(true);
        }
        let name = name_of(&GROUP_NUMBERS, id);
        if name.is_none() && id != 7 {
            return Some(false);
        }
        let value = scan.integer()?;
        match id {
            5 => found.file_offset = Some(value),
            7 => found.ordinal = Some(value),
            _ => {}
        }
        found.numbers.extend(name.map(|name| (name, value)));
        Some(true)
    })?;
    Some(found)
}

fn read_chunk(scan: &mut Scan<'_>, numbers: &mut Vec<(&'static str, i64)>) -> Option<()> {
    scan.each_field(|scan, id, _| {
        if id == 3 {
            scan.each_field(|scan, id, _| read_number(scan, &COLUMN_NUMBERS, id, numbers))?;
            return Some(true);
        }
        read_number(scan, &CHUNK_NUMBERS, id, numbers)
    })
}

/// Reads the field if it is one of `names`, and returns whether it is.
fn read_number(
    scan: &mut Scan<'_>,
    names: &[(i16, &'static str)],
    id: i16,
    into: &mut Vec<(&'static str, i64)>,
) -> Option<bool> {
    let Some(name) = name_of(names, id) else { return Some(false) };
    into.push((name, scan.integer()?));
    Some(true)
}

fn name_of(names: &[(i16, &'static str)], id: i16) -> Option<&'static str> {
    names.iter().find(|(known, _)| *known == id).map(|(_, name)| *name)
}

/// Refuses negative sizes, counts and offsets.
fn require_no_negative(layout: &Layout) -> Result<()> {
    match layout.numbers.iter().find(|(_, value)| *value < 0) {
        Some((name, value)) => {
            Err(ambiguous("", "a number that is not negative", value.to_string()).of_claim(name, None))
        }
        None => Ok(()),
    }
}

/// Requires that `file_offset` is the start of the first column's pages. A row group without rows is not checked,
/// because no engine reads it.
fn require_file_offset(group: &RowGroupMetaData, layout: &Layout) -> Result<()> {
    let Some(declared) = layout.file_offset else { return Ok(()) };
    if group.num_rows() == 0 || group.num_columns() == 0 {
        return Ok(());
    }
    let first = chunk_start(group.column(0));
    if usize::try_from(declared) == Ok(first) {
        return Ok(());
    }
    Err(ambiguous("", first.to_string(), declared.to_string()).of_claim("file_offset", None))
}

/// Requires that a declared `ordinal` is the row group's position.
fn require_ordinal(at: usize, layout: &Layout) -> Result<()> {
    match layout.ordinal {
        Some(declared) if usize::try_from(declared) != Ok(at) => {
            Err(ambiguous("", at.to_string(), declared.to_string()).of_claim("ordinal", None))
        }
        _ => Ok(()),
    }
}

/// Requires an `ordinal` in all row groups or in none. DataFusion does not read other files.
fn require_all_or_no_ordinals(layouts: &[Layout]) -> Result<()> {
    if layouts.windows(2).all(|pair| pair[0].ordinal.is_some() == pair[1].ordinal.is_some()) {
        return Ok(());
    }
    Err(ambiguous("", "an ordinal in every row group or in none", "in some").of_claim("ordinal", None))
}

/// Requires scale and precision together. Polars does not read a schema in which an element has only one of them.
fn require_scales(footer: &[u8]) -> Result<()> {
    let mut has_only_one = false;
    let scanned = Scan::new(footer, 0).each_field(|scan, id, _| {
        if id != SCHEMA {
            return Some(false);
        }
        for _ in 0..scan.list_length()? {
            let mut count = 0;
            scan.each_field(|_, id, _| {
                count += usize::from(id == SCALE || id == PRECISION);
                Some(false)
            })?;
            has_only_one |= count == 1;
        }
        Some(true)
    });
    if scanned.is_some() && !has_only_one {
        return Ok(());
    }
    Err(ambiguous("", "scale and precision, or neither", "only one of them"))
}

/// Refuses GeoParquet's key, because DuckDB reads the binary columns that the key names as geometries.
pub fn require_no_geo_key(metadata: &ParquetMetaData) -> Result<()> {
    let mut pairs = metadata.file_metadata().key_value_metadata().into_iter().flatten();
    if pairs.any(|pair| pair.key == "geo") {
        return Err(ambiguous("", "no key that changes types", "geo"));
    }
    Ok(())
}

/// Refuses columns that an engine filters by another type than the table's.
pub fn require_filterable(table_fields: &[Field], metadata: &ParquetMetaData) -> Result<()> {
    let mut types = HashMap::new();
    table_fields.iter().for_each(|field| collect_types(&field.name, &field.slot, &mut types));
    for (at, column) in metadata.file_metadata().schema_descr().columns().iter().enumerate() {
        let info = column.self_type().get_basic_info();
        let Some((path, kind)) = info.has_id().then(|| types.get(&info.id())).flatten() else { continue };
        match kind {
            // PyIceberg casts a filter's value to the file's type, and fails if the file's type has fewer digits.
            Type::Decimal { precision, .. } if i32::from(*precision) != column.type_precision() => {
                let got = format!("a decimal of {} digits", column.type_precision());
                return Err(Fault::new("cast_refused", path, kind.to_string(), got));
            }
            // DuckDB looks up bytes in another form than they are stored in.
            Type::Binary | Type::Fixed(_) if has_bloom_filter(metadata, at) => {
                let expected = "no bloom filter of bytes";
                return Err(Fault::new("parquet_claim_unverified", path, expected, "one"));
            }
            // Trino hashes the 8 bytes of a long, whatever the file's width.
            Type::Long if column.physical_type() == Physical::INT32 && has_bloom_filter(metadata, at) => {
                let expected = "no bloom filter of 32 bits for a column of 64";
                return Err(Fault::new("parquet_claim_unverified", path, expected, "one"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn has_bloom_filter(metadata: &ParquetMetaData, leaf: usize) -> bool {
    metadata.row_groups().iter().any(|group| group.column(leaf).bloom_filter_offset().is_some())
}

/// Collects the path and type of the field, and of all fields inside it, by id.
fn collect_types<'a>(path: &str, slot: &'a Slot, into: &mut HashMap<i32, (String, &'a Type)>) {
    into.extend(slot.id.map(|id| (id, (path.to_owned(), &slot.kind))));
    match &slot.kind {
        Type::Struct(fields) => {
            fields.iter().for_each(|field| collect_types(&join_path(path, &field.name), &field.slot, into));
        }
        Type::List(element) => collect_types(&join_path(path, "element"), element, into),
        Type::Map(key, value) => {
            collect_types(&join_path(path, "key"), key, into);
            collect_types(&join_path(path, "value"), value, into);
        }
        _ => {}
    }
}

fn ambiguous(column: &str, expected: impl Into<String>, got: impl Into<String>) -> Fault {
    Fault::new("parquet_ambiguous", column, expected, got)
}
