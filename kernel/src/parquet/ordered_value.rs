//! Values in the order of their type, for the bounds (least and greatest value) of a column, row group or page.

use arrow_buffer::i256;
use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::schema::types::ColumnDescriptor;
use std::cmp::Ordering;

/// The most bytes of a character in UTF-8.
const CHARACTER_MAX_BYTES: usize = 4;

/// A value of a file, as its type orders it.
#[derive(Clone, Debug, PartialEq)]
pub enum OrderedValue {
    Integer(i64),
    Decimal(i256),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
}

impl OrderedValue {
    /// Compares two values of one type.
    pub fn order(&self, other: &OrderedValue) -> Ordering {
        match (self, other) {
            (OrderedValue::Integer(a), OrderedValue::Integer(b)) => a.cmp(b),
            (OrderedValue::Decimal(a), OrderedValue::Decimal(b)) => a.cmp(b),
            // Negative zero is below zero, as in Java.
            (OrderedValue::Float(a), OrderedValue::Float(b)) => a.total_cmp(b),
            (OrderedValue::Double(a), OrderedValue::Double(b)) => a.total_cmp(b),
            (OrderedValue::Bytes(a), OrderedValue::Bytes(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }

    /// Cuts bytes after `most` bytes, or at the next end of a character. Compared with any value of fewer than `most`
    /// bytes, the prefix gives the same order as the whole value. Other values stay as they are.
    pub fn shorten(&self, most: usize) -> OrderedValue {
        match self {
            OrderedValue::Bytes(value) if value.len() > most => {
                let ends = (most..value.len()).take(CHARACTER_MAX_BYTES);
                let end = ends.into_iter().find(|at| value[*at] & 0xc0 != 0x80).unwrap_or(most);
                OrderedValue::Bytes(value[..end].to_vec())
            }
            _ => self.clone(),
        }
    }
}

/// Joins two pairs of bounds to the least and the greatest value of both.
pub fn join_bounds(
    a: Option<(OrderedValue, OrderedValue)>,
    b: Option<(OrderedValue, OrderedValue)>,
) -> Option<(OrderedValue, OrderedValue)> {
    match (a, b) {
        (Some((least, greatest)), Some((low, high))) => Some((
            if low.order(&least).is_lt() { low } else { least },
            if high.order(&greatest).is_gt() { high } else { greatest },
        )),
        (a, b) => a.or(b),
    }
}

/// How Parquet orders the values of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Boolean,
    Int32,
    Int64,
    Float,
    Double,
    /// Byte by byte, unsigned.
    Bytes,
    /// Two's complement, most significant byte first.
    Decimal,
    /// Readers disagree on the order, so no bounds may be declared.
    Undefined,
}

impl Order {
    pub fn of_column(column: &ColumnDescriptor) -> Order {
        let logical = column.logical_type_ref();
        let unsigned = match (logical, column.converted_type()) {
            (Some(LogicalType::Integer(kind)), _) => !kind.is_signed,
            (_, kind) => matches!(
                kind,
                ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64
            ),
        };
        let unordered = matches!(
            logical,
            Some(
                LogicalType::Unknown
                    | LogicalType::Float16
                    | LogicalType::Variant { .. }
                    | LogicalType::Geometry { .. }
                    | LogicalType::Geography { .. }
            )
        );
        if unsigned || unordered || column.converted_type() == ConvertedType::INTERVAL {
            return Order::Undefined;
        }
        let decimal =
            matches!(logical, Some(LogicalType::Decimal { .. })) || column.converted_type() == ConvertedType::DECIMAL;
        match column.physical_type() {
            Physical::BOOLEAN => Order::Boolean,
            Physical::INT32 => Order::Int32,
            Physical::INT64 => Order::Int64,
            Physical::INT96 => Order::Undefined,
            Physical::FLOAT => Order::Float,
            Physical::DOUBLE => Order::Double,
            Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY if decimal => Order::Decimal,
            Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => Order::Bytes,
        }
    }

    /// Reads a value as it is stored in statistics and plain pages. Returns `None` if the bytes are not a value of the
    /// type.
    pub fn value(self, bytes: &[u8]) -> Option<OrderedValue> {
        Some(match self {
            Order::Boolean => match bytes {
                [flag @ (0 | 1)] => OrderedValue::Integer((*flag).into()),
                _ => return None,
            },
            Order::Int32 => OrderedValue::Integer(i32::from_le_bytes(bytes.try_into().ok()?).into()),
            Order::Int64 => OrderedValue::Integer(i64::from_le_bytes(bytes.try_into().ok()?)),
            Order::Float => OrderedValue::Float(f32::from_le_bytes(bytes.try_into().ok()?)),
            Order::Double => OrderedValue::Double(f64::from_le_bytes(bytes.try_into().ok()?)),
            Order::Bytes => OrderedValue::Bytes(bytes.to_vec()),
            Order::Decimal => OrderedValue::Decimal(parse_decimal(bytes)?),
            Order::Undefined => return None,
        })
    }
}

/// Parses a signed big-endian number. Returns `None` for no bytes, and for more than the 32 that Arrow supports.
pub fn parse_decimal(bytes: &[u8]) -> Option<i256> {
    if bytes.is_empty() || bytes.len() > 32 {
        return None;
    }
    let mut whole = if bytes[0] & 0x80 == 0 { [0; 32] } else { [0xff; 32] };
    whole[32 - bytes.len()..].copy_from_slice(bytes);
    Some(i256::from_be_bytes(whole))
}

pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| DIGITS[usize::from(half)] as char).collect()
}

/// Longer bounds are cut: no reader needs them, and a file must not fill the memory with them.
pub const BOUND_MAX_BYTES: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_signed() {
        assert_eq!(parse_decimal(&[0xff, 0x7f]), Some(i256::from_i128(-129)));
        assert_eq!(parse_decimal(&[0, 0x80]), Some(i256::from_i128(128)));
        assert_eq!((parse_decimal(&[]), parse_decimal(&[0; 33])), (None, None));
    }

    #[test]
    fn a_value_has_the_width_of_its_type() {
        assert_eq!(Order::Int32.value(&[1, 0, 0]), None);
        assert_eq!(Order::Int32.value(&[255; 4]), Some(OrderedValue::Integer(-1)));
        assert_eq!(Order::Boolean.value(&[2]), None);
    }

    #[test]
    fn shortened_bytes_end_with_a_whole_character() {
        let cut = |text: &[u8], most| match OrderedValue::Bytes(text.to_vec()).shorten(most) {
            OrderedValue::Bytes(left) => left,
            _ => vec![],
        };
        assert_eq!(cut("aé".as_bytes(), 3), "aé".as_bytes());
        assert_eq!((cut("aéa".as_bytes(), 2), cut("aéa".as_bytes(), 1)), ("aé".as_bytes().to_vec(), b"a".to_vec()));
        assert_eq!(cut(&[0x80; 9], 2), [0x80; 2]);
        assert_eq!(OrderedValue::Integer(7).shorten(0), OrderedValue::Integer(7));
    }
}
