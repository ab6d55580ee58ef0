//! What a column's annotation says of its values, beyond how they compare: text is UTF-8, a short number is short.

use crate::bound::{Bound, hex};
use crate::claims::judge::Place;
use crate::claims::measure::Measure;
use crate::claims::told::{ColumnIndex, Statistics};
use crate::error::{Fault, Result};
use arrow_buffer::i256;
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::schema::types::ColumnDescriptor;

const UUID_BYTES: i32 = 16;

/// Whether readers make text of its bytes.
pub fn is_text(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::String | LogicalType::Enum | LogicalType::Json))
        || matches!(column.converted_type(), ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON)
}

/// Iceberg decodes the ends of text before it compares: what is no UTF-8 becomes another text, which may lie between values.
pub fn statistics(place: Place<'_>, told: &Statistics<'_>) -> Result<()> {
    let ends = told.ends.iter().chain(&told.old).flatten();
    ends.copied().try_for_each(|end| text(place, "min and max", end))
}

pub fn index(place: Place<'_>, told: &ColumnIndex<'_>) -> Result<()> {
    for ends in [&told.least, &told.greatest] {
        for (at, end) in ends.iter().enumerate() {
            text(Place { page: Some(at), ..place }, "min_values and max_values", end)?;
        }
    }
    Ok(())
}

/// Whether it may be a uuid. Java compares these with a sign, so that an end which is no value's may lie beyond all of them,
/// and ends that are cut are none.
pub fn is_uuid(column: &ColumnDescriptor) -> bool {
    column.physical_type() == Physical::FIXED_LEN_BYTE_ARRAY && column.type_length() == UUID_BYTES
}

pub fn whole(place: Place<'_>, told: &Statistics<'_>, bounds: Option<&(Bound, Bound)>) -> Result<()> {
    let Some((least, greatest)) = bounds else { return Ok(()) };
    for (side, real) in [least, greatest].into_iter().enumerate() {
        for told in [told.old[side], told.ends[side]].into_iter().flatten() {
            value(place, "min and max", told, real)?;
        }
    }
    Ok(())
}

pub fn whole_index(place: Place<'_>, told: &ColumnIndex<'_>, pages: &[Measure]) -> Result<()> {
    for (at, page) in pages.iter().enumerate() {
        let Some((least, greatest)) = &page.bounds else { continue };
        let place = Place { page: Some(at), ..place };
        for (told, real) in [(told.least[at], least), (told.greatest[at], greatest)] {
            value(place, "min_values and max_values", told, real)?;
        }
    }
    Ok(())
}

fn value(place: Place<'_>, claim: &str, told: &[u8], real: &Bound) -> Result<()> {
    match real {
        Bound::Bytes(real) if told != &real[..] => Err(place.fault(claim, hex(real), hex(told))),
        _ => Ok(()),
    }
}

fn text(place: Place<'_>, claim: &str, told: &[u8]) -> Result<()> {
    if std::str::from_utf8(told).is_ok() { Ok(()) } else { Err(place.fault(claim, "text in UTF-8", "other bytes")) }
}

/// Refuses numbers that the column's annotation has no room for: some readers cut them, others show them.
pub fn require_range(column: &ColumnDescriptor, path: &str, bounds: Option<&(Bound, Bound)>) -> Result<()> {
    let (Some((least, greatest)), Some((low, high))) = (range(column), bounds) else { return Ok(()) };
    let held = |bound: &Bound| match bound {
        Bound::Integer(value) => (least..=greatest).contains(&i256::from_i128((*value).into())),
        Bound::Decimal(value) => (least..=greatest).contains(value),
        _ => true,
    };
    if held(low) && held(high) {
        return Ok(());
    }
    let expected = "values in the range of the type that the column says it has";
    Err(Fault::new("parquet_ambiguous", path, expected, "others"))
}

/// The numbers of the annotation, where the physical type has more.
fn range(column: &ColumnDescriptor) -> Option<(i256, i256)> {
    let digits = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Decimal(_)), _) | (_, ConvertedType::DECIMAL) => Some(column.type_precision()),
        _ => None,
    };
    if let Some(digits) = digits {
        let most = i256::from_i128(10).checked_pow(u32::try_from(digits).ok()?)?.wrapping_sub(i256::ONE);
        return Some((most.wrapping_neg(), most));
    }
    let bits = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Integer(kind)), _) if kind.is_signed => u32::try_from(kind.bit_width).ok()?,
        (_, ConvertedType::INT_8) => 8,
        (_, ConvertedType::INT_16) => 16,
        _ => return None,
    };
    let most = i256::from_i128((1_i128 << (bits.clamp(1, 64) - 1)) - 1);
    matches!(column.physical_type(), Physical::INT32 | Physical::INT64)
        .then(|| (most.wrapping_neg().wrapping_sub(i256::ONE), most))
}
