//! Checks `ARROW:schema` in a published footer: Arrow's readers take types and names from it, so it must agree with the
//! file.

use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::{FIELD_ID, join_path};
use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_schema::{DataType, Field, Fields, Schema};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parquet::file::metadata::ParquetMetaData;

const KEY: &str = "ARROW:schema";
const EXTENSION: &str = "ARROW:extension:name";
/// Names of the time zone that mean UTC.
const UTC: [&str; 6] = ["UTC", "utc", "+00:00", "-00:00", "Etc/UTC", "Z"];
const UUID_BYTES: i32 = 16;

/// Refuses an Arrow schema that contradicts the file's own fields, which were checked against the table's.
pub fn require_arrow_schema(metadata: &ParquetMetaData, own: &Fields) -> Result<()> {
    let pairs = metadata.file_metadata().key_value_metadata().into_iter().flatten();
    let mut found = pairs.filter(|pair| pair.key == KEY);
    let Some(pair) = found.next() else { return Ok(()) };
    if found.next().is_some() {
        return Err(fault("", "the key once", "twice"));
    }
    let schema = pair.value.as_deref().and_then(decode).ok_or_else(|| fault("", "a schema of Arrow", "other bytes"))?;
    require_same_fields("", &schema.fields, own)
}

fn decode(text: &str) -> Option<Schema> {
    try_schema_from_ipc_buffer(&BASE64_STANDARD.decode(text).ok()?).ok()
}

fn require_same_fields(path: &str, declared: &Fields, own: &Fields) -> Result<()> {
    if declared.len() != own.len() {
        return Err(fault(path, format!("{} columns", own.len()), declared.len().to_string()));
    }
    for (declared, own) in declared.iter().zip(own) {
        let place = join_path(path, own.name());
        if declared.name() != own.name() {
            return Err(fault(&place, own.name().as_str(), declared.name().as_str()));
        }
        require_same_field(&place, declared, own)?;
    }
    Ok(())
}

/// Requires the same id, extension and type. The name is not compared, because readers find elements of lists, keys and
/// values by position.
fn require_same_field(path: &str, declared: &Field, own: &Field) -> Result<()> {
    if let Some(id) = declared.metadata().get(FIELD_ID)
        && own.metadata().get(FIELD_ID) != Some(id)
    {
        let expected = own.metadata().get(FIELD_ID).map_or("no field id", String::as_str);
        return Err(fault(path, expected, id.as_str()));
    }
    if let Some(name) = declared.metadata().get(EXTENSION)
        && !is_known_extension(name, own.data_type())
    {
        return Err(fault(path, "no extension type that changes values", name.as_str()));
    }
    require_same_type(path, declared.data_type(), own.data_type())
}

fn is_known_extension(name: &str, own: &DataType) -> bool {
    match own {
        DataType::FixedSizeBinary(UUID_BYTES) => name == "arrow.uuid",
        DataType::Utf8 => name == "arrow.json",
        DataType::Binary => name == "geoarrow.wkb",
        DataType::Struct(_) => name == "arrow.parquet.variant",
        _ => false,
    }
}

/// Requires the same type. Types that differ only in Arrow's memory layout are the same.
fn require_same_type(path: &str, declared: &DataType, own: &DataType) -> Result<()> {
    use DataType::*;
    let is_same = match (declared, own) {
        (Dictionary(_, values), _) => return require_same_type(path, values, own),
        (Struct(declared), Struct(own)) => return require_same_fields(path, declared, own),
        (List(declared) | LargeList(declared) | ListView(declared) | LargeListView(declared), List(own)) => {
            return require_same_field(&join_path(path, "element"), declared, own);
        }
        (Map(declared, _), Map(own, _)) => return require_same_entries(path, declared, own),
        (Utf8 | LargeUtf8 | Utf8View, Utf8) | (Binary | LargeBinary | BinaryView, Binary) => true,
        // No reader takes the unit from here. Writers that truncate nanoseconds leave the declared unit unchanged.
        (Timestamp(_, declared), Timestamp(_, own)) => match (declared, own) {
            (Some(zone), Some(_)) => UTC.contains(&zone.as_ref()),
            (declared, own) => declared.is_none() && own.is_none(),
        },
        _ => match (decimal_digits(declared), decimal_digits(own)) {
            (Some(declared), Some(own)) => declared == own,
            _ => declared == own,
        },
    };
    if is_same { Ok(()) } else { Err(fault(path, own.to_string(), declared.to_string())) }
}

fn require_same_entries(path: &str, declared: &Field, own: &Field) -> Result<()> {
    let (Some((declared_key, declared_value)), Some((own_key, own_value))) =
        (key_and_value(declared), key_and_value(own))
    else {
        return Err(fault(path, "keys and values", "different ones"));
    };
    require_same_field(&join_path(path, "key"), declared_key, own_key)?;
    require_same_field(&join_path(path, "value"), declared_value, own_value)
}

fn key_and_value(entries: &Field) -> Option<(&Field, &Field)> {
    match entries.data_type() {
        DataType::Struct(fields) => match &fields[..] {
            [key, value] => Some((key, value)),
            _ => None,
        },
        _ => None,
    }
}

/// Precision and scale of a decimal of any width.
fn decimal_digits(kind: &DataType) -> Option<(u8, i8)> {
    match kind {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => Some((*precision, *scale)),
        _ => None,
    }
}

fn fault(path: &str, expected: impl Into<String>, got: impl Into<String>) -> Fault {
    Fault::new("parquet_ambiguous", path, expected, got).of_claim(KEY, None)
}
