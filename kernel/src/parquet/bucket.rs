//! Which buckets a file's rows fall into (Iceberg specification, bucket transform and Appendix B).

use crate::canonical::schema::{Field, Type};
use crate::error::{Fault, Result};
use crate::parquet::scalars::{Numbers, Scalars, find_column, valid_rows};
use arrow_array::{Array, StructArray};
use arrow_buffer::NullBuffer;
use serde_json::{Value, json};

/// A field of a partition spec with the bucket transform, and the buckets of the rows so far. Two different buckets
/// show that the file lies in more than one partition, so no more are collected.
#[derive(Debug)]
pub struct BucketField {
    /// The names on the path to the column.
    names: Vec<String>,
    kind: Type,
    /// The number of buckets.
    count: u32,
    /// The distinct buckets; `None` is the bucket of null.
    seen: Vec<Option<u32>>,
}

/// The most buckets that are collected.
const SEEN_MAX: usize = 2;

/// Parses pairs of a column's id and a number of buckets. Refuses unknown columns, and columns inside lists and maps.
pub fn parse_buckets(fields: &[Field], pairs: &[(i64, i64)]) -> Result<Vec<BucketField>> {
    let parsed = pairs.iter().map(|(id, count)| {
        parse_bucket(fields, *id, *count).ok_or_else(|| {
            let expected = "the id of a column outside lists and maps, and a number of buckets";
            Fault::new("request_invalid", "", expected, format!("[{id},{count}]"))
        })
    });
    parsed.collect()
}

fn parse_bucket(fields: &[Field], id: i64, count: i64) -> Option<BucketField> {
    let id = i32::try_from(id).ok()?;
    let count = u32::try_from(count).ok().filter(|count| *count > 0)?;
    let (names, kind) = find_by_id(fields, id)?;
    Some(BucketField { names, kind, count, seen: Vec::new() })
}

fn find_by_id(fields: &[Field], id: i32) -> Option<(Vec<String>, Type)> {
    fields.iter().find_map(|field| match &field.slot.kind {
        kind if field.slot.id == Some(id) => Some((vec![field.name.clone()], kind.clone())),
        Type::Struct(children) => {
            let (mut names, kind) = find_by_id(children, id)?;
            names.insert(0, field.name.clone());
            Some((names, kind))
        }
        _ => None,
    })
}

impl BucketField {
    /// Whether the transformed column is this column of the schema, or inside it.
    pub fn reads_column(&self, name: &str) -> bool {
        self.names.first().is_some_and(|first| first == name)
    }

    /// Adds a batch that was resolved to the schema.
    pub fn add(&mut self, batch: &StructArray) -> Result<()> {
        if batch.is_empty() || self.seen.len() >= SEEN_MAX {
            return Ok(());
        }
        let column =
            find_column(batch, &self.names).filter(|(array, _)| *array.data_type() != arrow_schema::DataType::Null);
        let Some((array, nulls)) = column else {
            self.add_value(None);
            return Ok(());
        };
        if nulls.as_ref().is_some_and(|nulls| nulls.null_count() > 0) {
            self.add_value(None);
        }
        let Some(scalars) = Scalars::from_array(&array, &self.kind) else {
            let got = array.data_type().to_string();
            return Err(Fault::new("parquet_type_unsupported", &self.names.join("."), self.kind.to_string(), got));
        };
        self.add_hashes(&scalars, array.len(), nulls.as_ref());
        Ok(())
    }

    fn add_hashes(&mut self, scalars: &Scalars<'_>, count: usize, nulls: Option<&NullBuffer>) {
        for row in valid_rows(count, nulls) {
            let hash = match scalars {
                Scalars::Integers(numbers, factor) => murmur3(&self.hashed_number(numbers, row, *factor).to_le_bytes()),
                Scalars::Decimals(values) => murmur3(&values.bytes(row)),
                Scalars::Bytes(values) => murmur3(values.value(row)),
            };
            self.add_value(Some((hash & 0x7fff_ffff) % self.count));
            if self.seen.len() >= SEEN_MAX {
                return;
            }
        }
    }

    /// The number that is hashed, in the unit of the table's type. Nanosecond timestamps are hashed as microseconds.
    fn hashed_number(&self, numbers: &Numbers<'_>, row: usize, factor: i64) -> i64 {
        let value = numbers.value(row).wrapping_mul(factor);
        match self.kind {
            Type::TimestampNs | Type::TimestampTzNs => value.div_euclid(1_000),
            _ => value,
        }
    }

    fn add_value(&mut self, value: Option<u32>) {
        if !self.seen.contains(&value) {
            self.seen.push(value);
        }
    }

    /// The distinct buckets of the rows, at most two.
    pub fn to_json(&self) -> Value {
        json!(self.seen)
    }
}

/// Murmur3 for x86, 32 bits, seed 0.
fn murmur3(data: &[u8]) -> u32 {
    let mix = |part: u32| part.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (words, rest) = data.as_chunks::<4>();
    let mut state = words.iter().fold(0, |state: u32, word| {
        (state ^ mix(u32::from_le_bytes(*word))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        state ^= mix(last);
    }
    state ^= data.len() as u32;
    state = (state ^ state >> 16).wrapping_mul(0x85eb_ca6b);
    state = (state ^ state >> 13).wrapping_mul(0xc2b2_ae35);
    state ^ state >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_equal_those_of_the_specification() {
        assert_eq!(murmur3(&34_i64.to_le_bytes()) as i32, 2_017_239_379);
        assert_eq!(murmur3(b"iceberg") as i32, 1_210_000_089);
        assert_eq!(murmur3(&[0, 1, 2, 3]) as i32, -188_683_207);
        assert_eq!(murmur3(&[0x05, 0x8c]) as i32, -500_754_589);
        assert_eq!(murmur3(&[]), 0);
    }

    #[test]
    fn a_column_inside_a_list_cannot_be_asked_for() {
        let fields = crate::canonical::schema::parse_fields(&json!({"type": "struct", "fields": [
            {"id": 1, "name": "l", "required": false, "type": {"type": "list", "element":
                {"id": 2, "required": false, "type": "int"}}}]}))
        .unwrap();
        assert_eq!(parse_buckets(&fields, &[(2, 4)]).unwrap_err().code, "request_invalid");
        assert_eq!(parse_buckets(&fields, &[(1, 0)]).unwrap_err().code, "request_invalid");
    }
}
