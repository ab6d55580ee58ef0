//! Values of an Arrow column in the unit of the table's type.

use crate::canonical::schema::Type;
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, StringArray, StructArray};
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::{DataType, TimeUnit};

/// Finds the array at the end of a path of struct fields, and its nulls together with those of the structs around it.
/// Returns `None` if the batch lacks the field or a struct around it.
pub fn find_column(batch: &StructArray, names: &[String]) -> Option<(ArrayRef, Option<NullBuffer>)> {
    let mut nulls = batch.nulls().cloned();
    let mut array: Option<ArrayRef> = None;
    for name in names {
        let parent = array.as_ref().map_or(Some(batch), |found| found.as_struct_opt());
        let next = parent.and_then(|parent| parent.column_by_name(name))?;
        nulls = NullBuffer::union(nulls.as_ref(), next.logical_nulls().as_ref());
        array = Some(next.clone());
    }
    array.map(|array| (array, nulls))
}

/// The rows that are not null.
pub fn valid_rows(count: usize, nulls: Option<&NullBuffer>) -> impl Iterator<Item = usize> + '_ {
    (0..count).filter(move |row| nulls.is_none_or(|nulls| nulls.is_valid(*row)))
}

/// Drops leading bytes of a big-endian two's complement that only repeat the sign.
pub fn trim_sign_bytes(bytes: &[u8]) -> Vec<u8> {
    let sign = if bytes[0] & 0x80 == 0 { 0x00 } else { 0xff };
    let mut first = 0;
    while first + 1 < bytes.len() && bytes[first] == sign && (bytes[first + 1] & 0x80) == (sign & 0x80) {
        first += 1;
    }
    bytes[first..].to_vec()
}

/// The values of a column in the unit of its target type. Covers every type of a file that may be cast to a type which
/// Iceberg's bucket transform takes.
pub enum Scalars<'a> {
    /// Numbers, and the factor that converts them to the unit of the target.
    Integers(Numbers<'a>, i64),
    Decimals(Unscaled<'a>),
    Bytes(Strings<'a>),
}

pub enum Numbers<'a> {
    Boolean(&'a BooleanArray),
    I8(&'a [i8]),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U8(&'a [u8]),
    U16(&'a [u16]),
    U32(&'a [u32]),
}

pub enum Unscaled<'a> {
    I128(&'a [i128]),
    I256(&'a [i256]),
}

pub enum Strings<'a> {
    Text(&'a StringArray),
    Binary(&'a BinaryArray),
    Fixed(&'a FixedSizeBinaryArray),
}

impl<'a> Scalars<'a> {
    /// Returns `None` if the array's type may not be cast to this target type.
    pub fn from_array(array: &'a ArrayRef, kind: &Type) -> Option<Scalars<'a>> {
        Some(match (array.data_type(), kind) {
            (DataType::Utf8, Type::String) => Scalars::Bytes(Strings::Text(array.as_string())),
            (DataType::Binary, Type::Binary) => Scalars::Bytes(Strings::Binary(array.as_binary())),
            (DataType::FixedSizeBinary(_), Type::Fixed(_) | Type::Uuid) => {
                Scalars::Bytes(Strings::Fixed(array.as_fixed_size_binary()))
            }
            // Only decimals of equal scale can be cast to a decimal of the table.
            (DataType::Decimal128(_, from), Type::Decimal { scale, .. }) if i32::from(*from) == i32::from(*scale) => {
                Scalars::Decimals(Unscaled::I128(array.as_primitive::<Decimal128Type>().values()))
            }
            (DataType::Decimal256(_, from), Type::Decimal { scale, .. }) if i32::from(*from) == i32::from(*scale) => {
                Scalars::Decimals(Unscaled::I256(array.as_primitive::<Decimal256Type>().values()))
            }
            (_, Type::Boolean | Type::Int | Type::Long | Type::Date | Type::Time)
            | (_, Type::Timestamp | Type::TimestampTz | Type::TimestampNs | Type::TimestampTzNs) => {
                Scalars::Integers(read_numbers(array)?, unit_factor(array.data_type(), kind)?)
            }
            _ => return None,
        })
    }
}

impl<'a> Strings<'a> {
    pub fn value(&self, row: usize) -> &'a [u8] {
        match self {
            Strings::Text(array) => array.value(row).as_bytes(),
            Strings::Binary(array) => array.value(row),
            Strings::Fixed(array) => array.value(row),
        }
    }
}

impl Unscaled<'_> {
    /// The number in as few bytes as possible, most significant byte first.
    pub fn bytes(&self, row: usize) -> Vec<u8> {
        match self {
            Unscaled::I128(values) => trim_sign_bytes(&values[row].to_be_bytes()),
            Unscaled::I256(values) => trim_sign_bytes(&values[row].to_be_bytes()),
        }
    }
}

impl Numbers<'_> {
    pub fn value(&self, row: usize) -> i64 {
        match self {
            Numbers::Boolean(values) => values.value(row).into(),
            Numbers::I8(values) => values[row].into(),
            Numbers::I16(values) => values[row].into(),
            Numbers::I32(values) => values[row].into(),
            Numbers::I64(values) => values[row],
            Numbers::U8(values) => values[row].into(),
            Numbers::U16(values) => values[row].into(),
            Numbers::U32(values) => values[row].into(),
        }
    }
}

/// How many units of the target are one unit of the source. Returns `None` if the target's unit is coarser.
pub fn unit_factor(source: &DataType, target: &Type) -> Option<i64> {
    let nanos = matches!(target, Type::TimestampNs | Type::TimestampTzNs);
    let units_per_micro = if nanos { 1_000 } else { 1 };
    Some(match source {
        DataType::Date32 if matches!(target, Type::Timestamp | Type::TimestampNs) => 86_400_000_000 * units_per_micro,
        DataType::Timestamp(TimeUnit::Second, _) | DataType::Time32(TimeUnit::Second) => 1_000_000 * units_per_micro,
        DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Time32(TimeUnit::Millisecond) => {
            1_000 * units_per_micro
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Time64(TimeUnit::Microsecond) => units_per_micro,
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Time64(TimeUnit::Nanosecond) if !nanos => return None,
        _ => 1,
    })
}

/// The numbers of an array in their stored unit. Returns `None` for arrays of other types.
pub fn read_numbers(array: &ArrayRef) -> Option<Numbers<'_>> {
    Some(match array.data_type() {
        DataType::Boolean => Numbers::Boolean(array.as_boolean()),
        DataType::Int8 => Numbers::I8(array.as_primitive::<Int8Type>().values()),
        DataType::Int16 => Numbers::I16(array.as_primitive::<Int16Type>().values()),
        DataType::Int32 => Numbers::I32(array.as_primitive::<Int32Type>().values()),
        DataType::Int64 => Numbers::I64(array.as_primitive::<Int64Type>().values()),
        DataType::UInt8 => Numbers::U8(array.as_primitive::<UInt8Type>().values()),
        DataType::UInt16 => Numbers::U16(array.as_primitive::<UInt16Type>().values()),
        DataType::UInt32 => Numbers::U32(array.as_primitive::<UInt32Type>().values()),
        DataType::Date32 => Numbers::I32(array.as_primitive::<Date32Type>().values()),
        DataType::Time32(TimeUnit::Second) => Numbers::I32(array.as_primitive::<Time32SecondType>().values()),
        DataType::Time32(_) => Numbers::I32(array.as_primitive::<Time32MillisecondType>().values()),
        DataType::Time64(TimeUnit::Microsecond) => Numbers::I64(array.as_primitive::<Time64MicrosecondType>().values()),
        DataType::Time64(_) => Numbers::I64(array.as_primitive::<Time64NanosecondType>().values()),
        DataType::Timestamp(TimeUnit::Second, _) => Numbers::I64(array.as_primitive::<TimestampSecondType>().values()),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            Numbers::I64(array.as_primitive::<TimestampMillisecondType>().values())
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Numbers::I64(array.as_primitive::<TimestampMicrosecondType>().values())
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            Numbers::I64(array.as_primitive::<TimestampNanosecondType>().values())
        }
        _ => return None,
    })
}
