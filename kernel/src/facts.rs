//! Exact facts of a file's columns, for the manifest entry: counts, and the least and greatest value of each leaf.

use crate::error::{Fault, Result};
use crate::resolve::{Shape, holds};
use crate::schema::{Field, Type};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, StringArray, StructArray};
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::{DataType, TimeUnit};
use serde_json::{Value, json};
use std::cmp::Ordering;

/// Longer bounds are cut: no reader wants them, and a file's word must not fill the memory.
const BOUND_MAX_BYTES: usize = 65_536;

/// The facts of one leaf that is not inside a list or map, which have none.
#[derive(Debug)]
pub struct Leaf {
    id: i32,
    kind: Type,
    path: String,
    /// The names on the way from the batch to the leaf.
    way: Vec<String>,
    /// Whether the file has the column; readers fill in what it lacks.
    present: bool,
    values: u64,
    nulls: u64,
    nans: u64,
    bounds: Option<(Bound, Bound)>,
}

/// A value in a form that compares as its type does.
#[derive(Clone, Debug, PartialEq)]
enum Bound {
    Integer(i64),
    Decimal(i256),
    Float(f32),
    Double(f64),
    Bytes(Vec<u8>),
}

impl Bound {
    fn order(&self, other: &Bound) -> Ordering {
        match (self, other) {
            (Bound::Integer(a), Bound::Integer(b)) => a.cmp(b),
            (Bound::Decimal(a), Bound::Decimal(b)) => a.cmp(b),
            // Negative zero is below zero, as in Java.
            (Bound::Float(a), Bound::Float(b)) => a.total_cmp(b),
            (Bound::Double(a), Bound::Double(b)) => a.total_cmp(b),
            (Bound::Bytes(a), Bound::Bytes(b)) => a.cmp(b),
            _ => Ordering::Equal,
        }
    }
}

/// One leaf a primitive column outside lists and maps, in canonical order.
pub fn leaves(fields: &[Field], shape: &Shape) -> Vec<Leaf> {
    let mut found = Vec::new();
    gather(fields, &[], &mut found);
    for leaf in &mut found {
        leaf.present = holds(shape, &leaf.way);
    }
    found
}

fn gather(fields: &[Field], way: &[String], found: &mut Vec<Leaf>) {
    for field in fields {
        let mut below = way.to_vec();
        below.push(field.name.clone());
        match (&field.slot.kind, field.slot.id) {
            (Type::Struct(children), _) => gather(children, &below, found),
            (Type::List(_) | Type::Map(_, _), _) | (_, None) => {}
            (kind, Some(id)) => found.push(Leaf {
                id,
                kind: kind.clone(),
                path: below.join("."),
                way: below,
                present: false,
                values: 0,
                nulls: 0,
                nans: 0,
                bounds: None,
            }),
        }
    }
}

impl Leaf {
    /// Adds a batch that was resolved to the schema, and that the closed list of casts has let pass.
    pub fn add(&mut self, batch: &StructArray) -> Result<()> {
        let Some((array, nulls)) = reached(batch, &self.way) else {
            // An ancestor that the file lacks: every value below it is null.
            self.count(batch.len(), batch.len());
            return Ok(());
        };
        let missing = match array.data_type() {
            DataType::Null => array.len(),
            _ => nulls.as_ref().map_or(0, NullBuffer::null_count),
        };
        self.count(array.len(), missing);
        if missing < array.len() {
            self.widen(&array, nulls.as_ref().filter(|nulls| nulls.null_count() > 0))?;
        }
        Ok(())
    }

    fn count(&mut self, values: usize, nulls: usize) {
        self.values += values as u64;
        self.nulls += nulls as u64;
    }

    fn widen(&mut self, array: &ArrayRef, nulls: Option<&NullBuffer>) -> Result<()> {
        let found = match (array.data_type(), &self.kind) {
            (DataType::Float32, Type::Float) => {
                let values = array.as_primitive::<Float32Type>().values();
                self.nans += rows(array.len(), nulls).filter(|row| values[*row].is_nan()).count() as u64;
                let numbers = rows(array.len(), nulls).map(|row| values[row]).filter(|value| !value.is_nan());
                ends(numbers, |a, b| a.total_cmp(b).is_lt()).map(|(low, high)| (Bound::Float(low), Bound::Float(high)))
            }
            (DataType::Float32, Type::Double) => {
                let values = array.as_primitive::<Float32Type>().values();
                self.doubles(rows(array.len(), nulls).map(|row| f64::from(values[row])))
            }
            (DataType::Float64, Type::Double) => {
                let values = array.as_primitive::<Float64Type>().values();
                self.doubles(rows(array.len(), nulls).map(|row| values[row]))
            }
            // No bounds: their values have no order that readers use.
            (_, Type::Variant | Type::Geometry | Type::Geography | Type::Unknown) => None,
            (_, kind) => match Scalars::of(array, kind) {
                Some(scalars) => scalars.ends(array.len(), nulls),
                None => {
                    let got = array.data_type().to_string();
                    return Err(Fault::new("parquet_type_unsupported", &self.path, kind.to_string(), got));
                }
            },
        };
        self.join(found);
        Ok(())
    }

    fn doubles(&mut self, values: impl Iterator<Item = f64>) -> Option<(Bound, Bound)> {
        let mut nans = 0;
        let numbers = values.filter(|value| {
            nans += u64::from(value.is_nan());
            !value.is_nan()
        });
        let found = ends(numbers, |a, b| a.total_cmp(b).is_lt());
        self.nans += nans;
        found.map(|(low, high)| (Bound::Double(low), Bound::Double(high)))
    }

    fn join(&mut self, found: Option<(Bound, Bound)>) {
        let Some((low, high)) = found else { return };
        self.bounds = Some(match self.bounds.take() {
            None => (low, high),
            Some((least, greatest)) => (
                if low.order(&least).is_lt() { low } else { least },
                if high.order(&greatest).is_gt() { high } else { greatest },
            ),
        });
    }

    /// For Python: counts as numbers, bounds as hex of Iceberg's single values. A bound that is too long is cut, which
    /// is told: it is a prefix then.
    pub fn to_json(&self) -> Value {
        let floating = matches!(self.kind, Type::Float | Type::Double);
        let bounds = self.bounds.as_ref().map(|(low, high)| [self.single(low), self.single(high)]);
        let told = |at: usize| bounds.as_ref().map(|ends| ends[at].0.clone());
        let cut = |at: usize| bounds.as_ref().is_some_and(|ends| ends[at].1);
        json!({
            "id": self.id,
            "present": self.present,
            "values": self.values,
            "nulls": self.nulls,
            "nans": if floating { json!(self.nans) } else { Value::Null },
            "lower": told(0),
            "lower_cut": cut(0),
            "upper": told(1),
            "upper_cut": cut(1),
        })
    }

    fn single(&self, bound: &Bound) -> (String, bool) {
        let bytes = match (bound, &self.kind) {
            (Bound::Integer(value), Type::Boolean) => vec![u8::from(*value != 0)],
            (Bound::Integer(value), Type::Int | Type::Date) => (*value as i32).to_le_bytes().to_vec(),
            (Bound::Integer(value), _) => value.to_le_bytes().to_vec(),
            (Bound::Decimal(value), _) => minimal(&value.to_be_bytes()),
            (Bound::Float(value), _) => value.to_le_bytes().to_vec(),
            (Bound::Double(value), _) => value.to_le_bytes().to_vec(),
            (Bound::Bytes(value), Type::String) => value[..boundary(value)].to_vec(),
            (Bound::Bytes(value), _) => value[..value.len().min(BOUND_MAX_BYTES)].to_vec(),
        };
        let cut = matches!(bound, Bound::Bytes(value) if value.len() > bytes.len());
        (hex(&bytes), cut)
    }
}

/// The last place within the limit where a character ends.
fn boundary(text: &[u8]) -> usize {
    if text.len() <= BOUND_MAX_BYTES {
        return text.len();
    }
    (0..=BOUND_MAX_BYTES).rev().find(|at| text[*at] & 0xc0 != 0x80).unwrap_or(0)
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|half| DIGITS[usize::from(half)] as char).collect()
}

/// The array at the end of a way of struct fields, and where it is null, its ancestors' nulls included; `None` where an
/// ancestor is not in the file.
pub fn reached(batch: &StructArray, way: &[String]) -> Option<(ArrayRef, Option<NullBuffer>)> {
    let mut nulls = batch.nulls().cloned();
    let mut array: Option<ArrayRef> = None;
    for name in way {
        let parent = array.as_ref().map_or(Some(batch), |found| found.as_struct_opt());
        let next = parent.and_then(|parent| parent.column_by_name(name))?;
        nulls = NullBuffer::union(nulls.as_ref(), next.logical_nulls().as_ref());
        array = Some(next.clone());
    }
    array.map(|array| (array, nulls))
}

/// The rows that are not null.
pub fn rows(count: usize, nulls: Option<&NullBuffer>) -> impl Iterator<Item = usize> + '_ {
    let (all, some) = match nulls {
        None => (Some(0..count), None),
        Some(nulls) => (None, Some(nulls.valid_indices())),
    };
    all.into_iter().flatten().chain(some.into_iter().flatten())
}

fn ends<T: Copy>(mut values: impl Iterator<Item = T>, below: impl Fn(&T, &T) -> bool) -> Option<(T, T)> {
    let first = values.next()?;
    Some(values.fold((first, first), |(low, high), value| {
        (if below(&value, &low) { value } else { low }, if below(&high, &value) { value } else { high })
    }))
}

/// Two's complement, big-endian, without needless leading bytes.
fn minimal(bytes: &[u8]) -> Vec<u8> {
    let sign = if bytes[0] & 0x80 == 0 { 0x00 } else { 0xff };
    let mut first = 0;
    while first + 1 < bytes.len() && bytes[first] == sign && (bytes[first + 1] & 0x80) == (sign & 0x80) {
        first += 1;
    }
    bytes[first..].to_vec()
}

/// The values of a column in the units of its target type; what the closed list of casts lets pass and files can hold.
pub enum Scalars<'a> {
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
    pub fn of(array: &'a ArrayRef, kind: &Type) -> Option<Scalars<'a>> {
        Some(match (array.data_type(), kind) {
            (DataType::Utf8, Type::String) => Scalars::Bytes(Strings::Text(array.as_string())),
            (DataType::Binary, Type::Binary) => Scalars::Bytes(Strings::Binary(array.as_binary())),
            (DataType::FixedSizeBinary(_), Type::Fixed(_) | Type::Uuid) => {
                Scalars::Bytes(Strings::Fixed(array.as_fixed_size_binary()))
            }
            // The scales are equal: nothing else may stand for a decimal of a table.
            (DataType::Decimal128(_, from), Type::Decimal { scale, .. }) if i32::from(*from) == i32::from(*scale) => {
                Scalars::Decimals(Unscaled::I128(array.as_primitive::<Decimal128Type>().values()))
            }
            (DataType::Decimal256(_, from), Type::Decimal { scale, .. }) if i32::from(*from) == i32::from(*scale) => {
                Scalars::Decimals(Unscaled::I256(array.as_primitive::<Decimal256Type>().values()))
            }
            (_, Type::Boolean | Type::Int | Type::Long | Type::Date | Type::Time)
            | (_, Type::Timestamp | Type::TimestampTz | Type::TimestampNs | Type::TimestampTzNs) => {
                Scalars::Integers(numbers(array)?, units(array.data_type(), kind)?)
            }
            _ => return None,
        })
    }

    fn ends(&self, count: usize, nulls: Option<&NullBuffer>) -> Option<(Bound, Bound)> {
        match self {
            Scalars::Integers(numbers, units) => {
                let (low, high) = numbers.ends(count, nulls)?;
                Some((Bound::Integer(low.wrapping_mul(*units)), Bound::Integer(high.wrapping_mul(*units))))
            }
            Scalars::Decimals(Unscaled::I128(values)) => {
                let (low, high) = ends(rows(count, nulls).map(|row| values[row]), i128::lt)?;
                Some((Bound::Decimal(i256::from_i128(low)), Bound::Decimal(i256::from_i128(high))))
            }
            Scalars::Decimals(Unscaled::I256(values)) => {
                let (low, high) = ends(rows(count, nulls).map(|row| values[row]), i256::lt)?;
                Some((Bound::Decimal(low), Bound::Decimal(high)))
            }
            Scalars::Bytes(strings) => {
                let (low, high) = ends(rows(count, nulls).map(|row| strings.value(row)), |a, b| a < b)?;
                Some((Bound::Bytes(low.to_vec()), Bound::Bytes(high.to_vec())))
            }
        }
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
    /// As few bytes as hold the number, the most significant first.
    pub fn bytes(&self, row: usize) -> Vec<u8> {
        match self {
            Unscaled::I128(values) => minimal(&values[row].to_be_bytes()),
            Unscaled::I256(values) => minimal(&values[row].to_be_bytes()),
        }
    }
}

macro_rules! each_number {
    ($self:expr, $values:ident => $body:expr, $booleans:ident => $other:expr) => {
        match $self {
            Numbers::Boolean($booleans) => $other,
            Numbers::I8($values) => $body,
            Numbers::I16($values) => $body,
            Numbers::I32($values) => $body,
            Numbers::I64($values) => $body,
            Numbers::U8($values) => $body,
            Numbers::U16($values) => $body,
            Numbers::U32($values) => $body,
        }
    };
}

// The macro widens every width, the widest among them.
#[allow(clippy::useless_conversion)]
impl Numbers<'_> {
    pub fn value(&self, row: usize) -> i64 {
        each_number!(self, values => i64::from(values[row]), booleans => i64::from(booleans.value(row)))
    }

    fn ends(&self, count: usize, nulls: Option<&NullBuffer>) -> Option<(i64, i64)> {
        each_number!(self,
            values => {
                let (low, high) = match nulls {
                    // Without nulls over the plain slice, which compilers make fast.
                    None => (*values.iter().min()?, *values.iter().max()?),
                    Some(_) => ends(rows(count, nulls).map(|row| values[row]), |a, b| a < b)?,
                };
                Some((i64::from(low), i64::from(high)))
            },
            booleans => ends(rows(count, nulls).map(|row| i64::from(booleans.value(row))), i64::lt)
        )
    }
}

/// How many units of the target one unit of the source is.
fn units(source: &DataType, target: &Type) -> Option<i64> {
    let nanos = matches!(target, Type::TimestampNs | Type::TimestampTzNs);
    let micros = if nanos { 1_000 } else { 1 };
    Some(match source {
        DataType::Date32 if matches!(target, Type::Timestamp | Type::TimestampNs) => 86_400_000_000 * micros,
        DataType::Timestamp(TimeUnit::Second, _) | DataType::Time32(TimeUnit::Second) => 1_000_000 * micros,
        DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Time32(TimeUnit::Millisecond) => 1_000 * micros,
        DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Time64(TimeUnit::Microsecond) => micros,
        DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Time64(TimeUnit::Nanosecond) if !nanos => return None,
        _ => 1,
    })
}

fn numbers(array: &ArrayRef) -> Option<Numbers<'_>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_where_a_character_ends() {
        let text = "é".repeat(BOUND_MAX_BYTES);
        assert_eq!(boundary(text.as_bytes()), BOUND_MAX_BYTES);
        let shifted = format!("x{text}");
        assert_eq!(boundary(shifted.as_bytes()), BOUND_MAX_BYTES - 1);
        assert_eq!(boundary(b"abc"), 3);
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        for (number, bytes) in
            [(0_i128, &[0][..]), (127, &[127]), (128, &[0, 128]), (-128, &[128]), (-129, &[255, 127])]
        {
            assert_eq!(minimal(&number.to_be_bytes()), bytes);
        }
    }
}
