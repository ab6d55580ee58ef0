//! Exact facts of a file's columns, for the manifest entry: counts, and the least and greatest value of each leaf.

use crate::bound::{Bound, hex, joined};
use crate::claims::Watch;
use crate::error::{Fault, Result};
use crate::narrow::count;
use crate::resolve::{Shape, holds};
use crate::schema::{Field, Type};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, StringArray, StructArray};
use arrow_buffer::{NullBuffer, i256};
use arrow_schema::{DataType, Fields, TimeUnit};
use serde_json::{Value, json};

/// Longer bounds are cut: no reader wants them, and a file's word must not fill the memory.
pub const BOUND_MAX_BYTES: usize = 65_536;

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
    /// The file's own leaf and its type.
    source: Option<(usize, DataType)>,
    values: u64,
    nulls: u64,
    nans: u64,
    bounds: Option<(Bound, Bound)>,
}

/// One leaf a primitive column outside lists and maps, in canonical order.
pub fn leaves(fields: &[Field], shape: &Shape, file: &Fields) -> Vec<Leaf> {
    let mut found = Vec::new();
    gather(fields, &[], &mut found);
    for leaf in &mut found {
        leaf.present = holds(shape, &leaf.way);
        leaf.source = source(shape, file, &leaf.way);
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
                source: None,
                values: 0,
                nulls: 0,
                nans: 0,
                bounds: None,
            }),
        }
    }
}

/// Which of the file's own leaves stands at the end of the way, and its type; none where it is a group, as a variant is.
fn source(shape: &Shape, file: &Fields, way: &[String]) -> Option<(usize, DataType)> {
    let (name, rest) = way.split_first()?;
    let Shape::Struct(children) = shape else { return None };
    let (at, inner) = children.iter().find(|child| child.name == *name)?.source.as_ref()?;
    let before: usize = file[..*at].iter().map(|field| count(field)).sum();
    match (file[*at].data_type(), rest) {
        (DataType::Struct(fields), [_, ..]) => source(inner, fields, rest).map(|(at, kind)| (before + at, kind)),
        (kind, []) if !kind.is_nested() => Some((before, kind.clone())),
        _ => None,
    }
}

impl Leaf {
    /// Adds a batch that was resolved to the schema, where no single leaf of the file is measured for this one.
    pub fn add(&mut self, batch: &StructArray) {
        if self.source.is_some() {
            return;
        }
        let nulls = match reached(batch, &self.way) {
            // A column or an ancestor that the file lacks: every value is null.
            None => batch.len(),
            Some((array, _)) if array.data_type() == &DataType::Null => batch.len(),
            Some((_, nulls)) => nulls.map_or(0, |nulls| nulls.null_count()),
        };
        self.count(batch.len(), nulls);
    }

    /// Adds what was measured of a row group's pages, which the closed list of casts has let pass.
    pub fn join(&mut self, chunks: &[Watch]) -> Result<()> {
        let Some((at, given)) = self.source.clone() else { return Ok(()) };
        let Some(chunk) = chunks.get(at) else { return Ok(()) };
        chunk.with(|chunk| {
            let (mut present, mut nans) = (0, 0);
            for page in &chunk.pages {
                self.count(page.entries as usize, (page.entries - page.present) as usize);
                (present, nans) = (present + page.present, nans + page.nans);
            }
            self.nans += nans;
            let found = match &chunk.ends {
                _ if self.has_no_order() => return Ok(()),
                Some((low, high)) => self.cast(low, &given).zip(self.cast(high, &given)),
                // Values, but neither an order nor NaN: nothing is known of them.
                None if present > nans => None,
                None => return Ok(()),
            };
            let Some((low, high)) = found else {
                let (expected, got) = (self.kind.to_string(), given.to_string());
                return Err(Fault::new("parquet_type_unsupported", &self.path, expected, got));
            };
            let ends = (low.cut(BOUND_MAX_BYTES + 1), high.cut(BOUND_MAX_BYTES + 1));
            self.bounds = joined(self.bounds.take(), Some(ends));
            Ok(())
        })
    }

    fn count(&mut self, values: usize, nulls: usize) {
        self.values += values as u64;
        self.nulls += nulls as u64;
    }

    /// No bounds: their values have no order that readers use.
    fn has_no_order(&self) -> bool {
        matches!(self.kind, Type::Variant | Type::Geometry | Type::Geography | Type::Unknown)
    }

    /// A value of the file in the units of the table.
    fn cast(&self, bound: &Bound, given: &DataType) -> Option<Bound> {
        Some(match (bound, given, &self.kind) {
            (Bound::Float(_), DataType::Float32, Type::Float) | (Bound::Double(_), DataType::Float64, Type::Double) => {
                bound.clone()
            }
            (Bound::Bytes(_), DataType::Utf8, Type::String)
            | (Bound::Bytes(_), DataType::Binary, Type::Binary)
            | (Bound::Bytes(_), DataType::FixedSizeBinary(_), Type::Fixed(_) | Type::Uuid) => bound.clone(),
            // The scales are equal: nothing else may stand for a decimal of a table.
            (_, DataType::Decimal128(_, from) | DataType::Decimal256(_, from), Type::Decimal { scale, .. })
                if i32::from(*from) == i32::from(*scale) =>
            {
                match bound {
                    Bound::Integer(value) => Bound::Decimal(i256::from_i128((*value).into())),
                    Bound::Decimal(_) => bound.clone(),
                    _ => return None,
                }
            }
            (
                Bound::Integer(value),
                given,
                Type::Boolean
                | Type::Int
                | Type::Long
                | Type::Date
                | Type::Time
                | Type::Timestamp
                | Type::TimestampTz
                | Type::TimestampNs
                | Type::TimestampTzNs,
            ) => Bound::Integer(value.wrapping_mul(units(given, &self.kind)?)),
            _ => return None,
        })
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

pub fn numbers(array: &ArrayRef) -> Option<Numbers<'_>> {
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
