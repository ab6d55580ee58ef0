//! Exact bounds of a column chunk or page for the published footer and column index; none if readers disagree on them.

use crate::canonical::schema::Type;
use crate::parquet::claims::measure::PageMeasure;
use crate::parquet::ordered_value::OrderedValue;
use crate::parquet::rewrite::elements::Column;
use parquet::basic::Type as Physical;

/// Longer texts get no bounds, because a measured bound of more bytes may be cut.
const WRITTEN_BOUND_MAX_BYTES: usize = 63;

/// Whether bounds are written for the column: readers must agree on the order of its values. Spark compares UUIDs as
/// signed numbers, and PyArrow truncates fixed-length values.
pub fn has_bounds(column: &Column) -> bool {
    match column.kind {
        Some(
            Type::Boolean
            | Type::Int
            | Type::Long
            | Type::Float
            | Type::Double
            | Type::Date
            | Type::Time
            | Type::TimeNs
            | Type::Timestamp
            | Type::TimestampTz
            | Type::TimestampNs
            | Type::TimestampTzNs
            | Type::String,
        ) => true,
        // A number in a byte array of any length has many forms.
        Some(Type::Decimal { .. }) => column.physical != Physical::BYTE_ARRAY,
        _ => false,
    }
}

/// The least and the greatest value as plain bytes. Returns `None` without a value, and with a NaN, because engines
/// sort NaN differently.
pub fn exact_bounds(column: &Column, measured: &PageMeasure) -> Option<(Vec<u8>, Vec<u8>)> {
    if !has_bounds(column) || measured.nans > 0 {
        return None;
    }
    let (low, high) = measured.bounds.as_ref()?;
    Some((to_plain_bytes(column, low, -0.0)?, to_plain_bytes(column, high, 0.0)?))
}

/// A bound as plain bytes. A float that is zero, of either sign, becomes `zero`.
fn to_plain_bytes(column: &Column, bound: &OrderedValue, zero: f64) -> Option<Vec<u8>> {
    match (bound, column.physical) {
        (OrderedValue::Integer(value), Physical::BOOLEAN) => Some(vec![u8::from(*value != 0)]),
        (OrderedValue::Integer(value), Physical::INT32) => Some(i32::try_from(*value).ok()?.to_le_bytes().to_vec()),
        (OrderedValue::Integer(value), Physical::INT64) => Some(value.to_le_bytes().to_vec()),
        // Engines treat both zeros as equal, so the bounds include both.
        (OrderedValue::Float(value), Physical::FLOAT) => {
            Some((if *value == 0.0 { zero as f32 } else { *value }).to_le_bytes().to_vec())
        }
        (OrderedValue::Double(value), Physical::DOUBLE) => {
            Some((if *value == 0.0 { zero } else { *value }).to_le_bytes().to_vec())
        }
        (OrderedValue::Decimal(value), Physical::FIXED_LEN_BYTE_ARRAY) => {
            let whole = value.to_be_bytes();
            let length = usize::try_from(column.length).ok()?;
            Some(whole[whole.len().checked_sub(length)?..].to_vec())
        }
        (OrderedValue::Bytes(value), Physical::BYTE_ARRAY) => {
            (value.len() <= WRITTEN_BOUND_MAX_BYTES).then(|| value.clone())
        }
        _ => None,
    }
}
