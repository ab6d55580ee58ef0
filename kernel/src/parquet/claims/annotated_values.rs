//! Checks values and bounds against their column's annotation: bounds of text are UTF-8, those of UUIDs are exact, and
//! numbers fit the declared width.

use crate::error::{Fault, Result};
use crate::parquet::claims::compare::ClaimPlace;
use crate::parquet::claims::measure::PageMeasure;
use crate::parquet::claims::metadata::{ColumnIndex, Statistics};
use crate::parquet::ordered_value::{OrderedValue, to_hex};
use arrow_buffer::i256;
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::schema::types::ColumnDescriptor;

const UUID_BYTES: i32 = 16;

/// Whether readers decode the values as text.
pub fn is_text(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::String | LogicalType::Enum | LogicalType::Json))
        || matches!(column.converted_type(), ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON)
}

/// Refuses bounds of text that are not UTF-8. Iceberg decodes bounds of text before it compares them, so invalid bytes
/// would become other text. The values may lie outside of such bounds.
pub fn require_utf8_statistics(place: ClaimPlace<'_>, declared: &Statistics<'_>) -> Result<()> {
    let bounds = declared.bounds.iter().chain(&declared.old).flatten();
    bounds.copied().try_for_each(|bound| require_utf8(place, "min and max", bound))
}

/// Refuses bounds in a column index that are not UTF-8.
pub fn require_utf8_index(place: ClaimPlace<'_>, declared: &ColumnIndex<'_>) -> Result<()> {
    for bounds in [&declared.least, &declared.greatest] {
        for (at, bound) in bounds.iter().enumerate() {
            require_utf8(ClaimPlace { page: Some(at), ..place }, "min_values and max_values", bound)?;
        }
    }
    Ok(())
}

/// Whether the column may hold UUIDs. Java compares UUIDs as signed numbers. In this order, a bound that is not itself
/// a value may lie on the wrong side of all values.
pub fn is_uuid(column: &ColumnDescriptor) -> bool {
    column.physical_type() == Physical::FIXED_LEN_BYTE_ARRAY && column.type_length() == UUID_BYTES
}

/// Refuses bounds of UUIDs that are not exactly the least and the greatest value.
pub fn require_exact_bounds(
    place: ClaimPlace<'_>,
    declared: &Statistics<'_>,
    bounds: Option<&(OrderedValue, OrderedValue)>,
) -> Result<()> {
    let Some((least, greatest)) = bounds else { return Ok(()) };
    for (side, real) in [least, greatest].into_iter().enumerate() {
        for declared in [declared.old[side], declared.bounds[side]].into_iter().flatten() {
            require_equal_bytes(place, "min and max", declared, real)?;
        }
    }
    Ok(())
}

/// Refuses bounds of UUIDs in a column index that are not exactly the least and the greatest value of their page.
pub fn require_exact_index_bounds(
    place: ClaimPlace<'_>,
    declared: &ColumnIndex<'_>,
    pages: &[PageMeasure],
) -> Result<()> {
    for (at, page) in pages.iter().enumerate() {
        let Some((least, greatest)) = &page.bounds else { continue };
        let place = ClaimPlace { page: Some(at), ..place };
        for (declared, real) in [(declared.least[at], least), (declared.greatest[at], greatest)] {
            require_equal_bytes(place, "min_values and max_values", declared, real)?;
        }
    }
    Ok(())
}

fn require_equal_bytes(place: ClaimPlace<'_>, claim: &str, declared: &[u8], real: &OrderedValue) -> Result<()> {
    match real {
        OrderedValue::Bytes(real) if declared != &real[..] => Err(place.fault(claim, to_hex(real), to_hex(declared))),
        _ => Ok(()),
    }
}

fn require_utf8(place: ClaimPlace<'_>, claim: &str, declared: &[u8]) -> Result<()> {
    if std::str::from_utf8(declared).is_ok() { Ok(()) } else { Err(place.fault(claim, "text in UTF-8", "other bytes")) }
}

/// Refuses a column with numbers outside the annotation's range: some readers truncate them, others do not.
pub fn require_range(
    column: &ColumnDescriptor,
    path: &str,
    bounds: Option<&(OrderedValue, OrderedValue)>,
) -> Result<()> {
    let (Some((least, greatest)), Some((low, high))) = (annotation_range(column), bounds) else { return Ok(()) };
    let is_in_range = |bound: &OrderedValue| match bound {
        OrderedValue::Integer(value) => (least..=greatest).contains(&i256::from_i128((*value).into())),
        OrderedValue::Decimal(value) => (least..=greatest).contains(value),
        _ => true,
    };
    if is_in_range(low) && is_in_range(high) {
        return Ok(());
    }
    let expected = "values in the range of the column's annotated type";
    Err(Fault::new("parquet_ambiguous", path, expected, "different ones"))
}

/// The range of the annotated type, if the physical type has a larger range.
fn annotation_range(column: &ColumnDescriptor) -> Option<(i256, i256)> {
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
