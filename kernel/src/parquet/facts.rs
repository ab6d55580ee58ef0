//! Exact facts of a file's columns for the manifest entry: counts, and the least and greatest value of each leaf.

use crate::canonical::schema::{Field, Type};
use crate::error::{Fault, Result};
use crate::parquet::arrow_fields::count_leaves;
use crate::parquet::claims::pages::SharedMeasure;
use crate::parquet::ordered_value::{BOUND_MAX_BYTES, OrderedValue, join_bounds, to_hex};
use crate::parquet::resolve::{Shape, has_column};
use crate::parquet::scalars::{find_column, trim_sign_bytes, unit_factor};
use arrow_array::{Array, StructArray};
use arrow_buffer::i256;
use arrow_schema::{DataType, Fields};
use serde_json::{Value, json};

/// The facts of one leaf outside lists and maps. Leaves inside them have no facts.
#[derive(Debug)]
pub struct LeafFacts {
    id: i32,
    kind: Type,
    /// The names on the path to the leaf, joined by points.
    path: String,
    /// The same names as a list.
    names: Vec<String>,
    /// Whether the file has the column. Readers take a missing column for nulls.
    present: bool,
    /// The position of the column among all leaves of the file, and its type there. `None` if the file lacks the
    /// column, or has a group in its place.
    source: Option<(usize, DataType)>,
    values: u64,
    nulls: u64,
    nans: u64,
    bounds: Option<(OrderedValue, OrderedValue)>,
}

/// Collects one leaf per primitive column outside lists and maps. The leaves have the order of
/// `fields`, which are sorted by name.
pub fn collect_leaves(fields: &[Field], shape: &Shape, file: &Fields) -> Vec<LeafFacts> {
    let mut found = Vec::new();
    collect_into(fields, &[], &mut found);
    for leaf in &mut found {
        leaf.present = has_column(shape, &leaf.names);
        leaf.source = find_source(shape, file, &leaf.names);
    }
    found
}

fn collect_into(fields: &[Field], names: &[String], found: &mut Vec<LeafFacts>) {
    for field in fields {
        let mut below = names.to_vec();
        below.push(field.name.clone());
        match (&field.slot.kind, field.slot.id) {
            (Type::Struct(children), _) => collect_into(children, &below, found),
            (Type::List(_) | Type::Map(_, _), _) | (_, None) => {}
            (kind, Some(id)) => found.push(LeafFacts {
                id,
                kind: kind.clone(),
                path: below.join("."),
                names: below,
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

/// Finds the file's leaf at the end of a path, and its type. Returns `None` for a group, such as a variant.
fn find_source(shape: &Shape, file: &Fields, names: &[String]) -> Option<(usize, DataType)> {
    let (name, rest) = names.split_first()?;
    let Shape::Struct(children) = shape else { return None };
    let (at, inner) = children.iter().find(|child| child.name == *name)?.source.as_ref()?;
    let before: usize = file[..*at].iter().map(|field| count_leaves(field)).sum();
    match (file[*at].data_type(), rest) {
        (DataType::Struct(fields), [_, ..]) => find_source(inner, fields, rest).map(|(at, kind)| (before + at, kind)),
        (kind, []) if !kind.is_nested() => Some((before, kind.clone())),
        _ => None,
    }
}

impl LeafFacts {
    /// Adds the counts of a batch that was resolved to the schema. Does nothing if the column is a leaf of the
    /// file (`source`): `add_measured` then adds the counts of its pages.
    pub fn add(&mut self, batch: &StructArray) {
        if self.source.is_some() {
            return;
        }
        let nulls = match find_column(batch, &self.names) {
            // The file lacks the column or an ancestor, so every value is null.
            None => batch.len(),
            Some((array, _)) if array.data_type() == &DataType::Null => batch.len(),
            Some((_, nulls)) => nulls.map_or(0, |nulls| nulls.null_count()),
        };
        self.add_counts(batch.len(), nulls);
    }

    /// Adds counts and bounds of a row group's measured pages. Refuses a type whose bounds are not known.
    pub fn add_measured(&mut self, chunks: &[SharedMeasure]) -> Result<()> {
        let Some((at, given)) = self.source.clone() else { return Ok(()) };
        let Some(chunk) = chunks.get(at) else { return Ok(()) };
        chunk.with(|chunk| {
            let (mut present, mut nans) = (0, 0);
            for page in &chunk.pages {
                self.add_counts(page.entries as usize, (page.entries - page.present) as usize);
                (present, nans) = (present + page.present, nans + page.nans);
            }
            self.nans += nans;
            let found = match &chunk.bounds {
                _ if self.has_no_order() => return Ok(()),
                Some((low, high)) => self.cast(low, &given).zip(self.cast(high, &given)),
                // There are values, but no bounds are known.
                None if present > nans => None,
                None => return Ok(()),
            };
            let Some((low, high)) = found else {
                let (expected, got) = (self.kind.to_string(), given.to_string());
                return Err(Fault::new("parquet_type_unsupported", &self.path, expected, got));
            };
            // One byte more than `to_json` gives, so that `to_json` can tell that a bound is cut.
            let bounds = (low.shorten(BOUND_MAX_BYTES + 1), high.shorten(BOUND_MAX_BYTES + 1));
            self.bounds = join_bounds(self.bounds.take(), Some(bounds));
            Ok(())
        })
    }

    fn add_counts(&mut self, values: usize, nulls: usize) {
        self.values += values as u64;
        self.nulls += nulls as u64;
    }

    /// Whether values of this type have no order that readers use. Then there are no bounds.
    fn has_no_order(&self) -> bool {
        matches!(self.kind, Type::Variant | Type::Geometry | Type::Geography | Type::Unknown)
    }

    /// Converts a value of the file, whose type is `given`, to the table's type. Returns `None` if that is not
    /// possible.
    fn cast(&self, bound: &OrderedValue, given: &DataType) -> Option<OrderedValue> {
        Some(match (bound, given, &self.kind) {
            (OrderedValue::Float(_), DataType::Float32, Type::Float)
            | (OrderedValue::Double(_), DataType::Float64, Type::Double) => bound.clone(),
            (OrderedValue::Bytes(_), DataType::Utf8, Type::String)
            | (OrderedValue::Bytes(_), DataType::Binary, Type::Binary)
            | (OrderedValue::Bytes(_), DataType::FixedSizeBinary(_), Type::Fixed(_) | Type::Uuid) => bound.clone(),
            // Only decimals of equal scale can be cast to a decimal of the table.
            (_, DataType::Decimal128(_, from) | DataType::Decimal256(_, from), Type::Decimal { scale, .. })
                if i32::from(*from) == i32::from(*scale) =>
            {
                match bound {
                    OrderedValue::Integer(value) => OrderedValue::Decimal(i256::from_i128((*value).into())),
                    OrderedValue::Decimal(_) => bound.clone(),
                    _ => return None,
                }
            }
            (
                OrderedValue::Integer(value),
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
            ) => OrderedValue::Integer(value.wrapping_mul(unit_factor(given, &self.kind)?)),
            _ => return None,
        })
    }

    /// The facts as JSON. Bounds are hex digits of Iceberg's single-value serialization. A long bound is cut to a
    /// prefix, and marked as cut.
    pub fn to_json(&self) -> Value {
        let floating = matches!(self.kind, Type::Float | Type::Double);
        let bounds = self.bounds.as_ref();
        let lower = bounds.map(|(low, _)| self.to_single_value(low));
        let upper = bounds.map(|(_, high)| self.to_single_value(high));
        let hex = |bound: &Option<(String, bool)>| bound.as_ref().map(|(hex, _)| hex.clone());
        let is_cut = |bound: &Option<(String, bool)>| bound.as_ref().is_some_and(|(_, is_cut)| *is_cut);
        json!({
            "id": self.id,
            "present": self.present,
            "values": self.values,
            "nulls": self.nulls,
            "nans": if floating { json!(self.nans) } else { Value::Null },
            "lower": hex(&lower),
            "lower_cut": is_cut(&lower),
            "upper": hex(&upper),
            "upper_cut": is_cut(&upper),
        })
    }

    /// The bound in Iceberg's single-value serialization as hex, and whether it is cut.
    fn to_single_value(&self, bound: &OrderedValue) -> (String, bool) {
        let bytes = match (bound, &self.kind) {
            (OrderedValue::Integer(value), Type::Boolean) => vec![u8::from(*value != 0)],
            (OrderedValue::Integer(value), Type::Int | Type::Date) => (*value as i32).to_le_bytes().to_vec(),
            (OrderedValue::Integer(value), _) => value.to_le_bytes().to_vec(),
            (OrderedValue::Decimal(value), _) => trim_sign_bytes(&value.to_be_bytes()),
            (OrderedValue::Float(value), _) => value.to_le_bytes().to_vec(),
            (OrderedValue::Double(value), _) => value.to_le_bytes().to_vec(),
            (OrderedValue::Bytes(value), Type::String) => value[..find_character_end(value)].to_vec(),
            (OrderedValue::Bytes(value), _) => value[..value.len().min(BOUND_MAX_BYTES)].to_vec(),
        };
        let cut = matches!(bound, OrderedValue::Bytes(value) if value.len() > bytes.len());
        (to_hex(&bytes), cut)
    }
}

/// The last position within `BOUND_MAX_BYTES` where a character ends.
fn find_character_end(text: &[u8]) -> usize {
    if text.len() <= BOUND_MAX_BYTES {
        return text.len();
    }
    (0..=BOUND_MAX_BYTES).rev().find(|at| text[*at] & 0xc0 != 0x80).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_where_a_character_ends() {
        let text = "é".repeat(BOUND_MAX_BYTES);
        assert_eq!(find_character_end(text.as_bytes()), BOUND_MAX_BYTES);
        let shifted = format!("x{text}");
        assert_eq!(find_character_end(shifted.as_bytes()), BOUND_MAX_BYTES - 1);
        assert_eq!(find_character_end(b"abc"), 3);
    }

    #[test]
    fn numbers_are_as_short_as_they_can_be() {
        for (number, bytes) in
            [(0_i128, &[0][..]), (127, &[127]), (128, &[0, 128]), (-128, &[128]), (-129, &[255, 127])]
        {
            assert_eq!(trim_sign_bytes(&number.to_be_bytes()), bytes);
        }
    }
}
