//! A bound column: an Arrow array as values of a target type, and the canonical cell of each value.

use crate::canonical::floats::Floats;
use crate::canonical::schema::{Mode, ROW_SIZE_MAX_BYTES};
use crate::canonical::strings::{self, Refusal};
use crate::canonical::text::*;
use crate::canonical::variant;
use crate::error::{Fault, Result};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer, i256};

/// A column that the module `bind` made. Index 0 is the first row of the batch, or the first element of a child array.
pub struct Column {
    /// The names of the column and of those around it, joined by points.
    pub path: String,
    /// The error code of a null, if nulls are refused.
    pub null_code: Option<&'static str>,
    pub nulls: Option<NullBuffer>,
    pub len: usize,
    pub values: Values,
}

/// The values of a column.
///
/// - `tag` is the first byte of the canonical cell of each value.
/// - `text` is the mode in which strings are encoded. It is `None` for bytes.
/// - `depth` is the nesting depth of the variant column itself.
/// - `offset`: if the array is a slice, the number of rows before the slice. `ends` counts these rows too.
pub enum Values {
    Nulls,
    Boolean(BooleanBuffer),
    Integers { tag: u8, values: Integers, conversion: Conversion },
    Floats { tag: u8, values: Floats },
    Decimals(Decimals),
    Bytes { tag: u8, values: ByteStrings, text: Option<Mode> },
    Struct(Vec<Column>),
    List { ranges: Ranges, element: Box<Column> },
    Map { ranges: Ranges, key: Box<Column>, value: Box<Column> },
    Variant { metadata: Box<Column>, value: Box<Column>, mode: Mode, depth: usize },
    Dictionary { keys: Integers, values: Box<Column> },
    RunEnds { ends: Integers, offset: usize, values: Box<Column> },
}

/// Integers at their stored width.
pub enum Integers {
    I8(ScalarBuffer<i8>),
    I16(ScalarBuffer<i16>),
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    U8(ScalarBuffer<u8>),
    U16(ScalarBuffer<u16>),
    U32(ScalarBuffer<u32>),
    U64(ScalarBuffer<u64>),
}

impl Integers {
    /// The number as i64. Returns `None` for a u64 above that range.
    #[inline]
    pub fn get(&self, index: usize) -> Option<i64> {
        Some(match self {
            Integers::I8(values) => values[index].into(),
            Integers::I16(values) => values[index].into(),
            Integers::I32(values) => values[index].into(),
            Integers::I64(values) => values[index],
            Integers::U8(values) => values[index].into(),
            Integers::U16(values) => values[index].into(),
            Integers::U32(values) => values[index].into(),
            Integers::U64(values) => return i64::try_from(values[index]).ok(),
        })
    }

    pub fn len(&self) -> usize {
        match self {
            Integers::I8(values) => values.len(),
            Integers::I16(values) => values.len(),
            Integers::I32(values) => values.len(),
            Integers::I64(values) => values.len(),
            Integers::U8(values) => values.len(),
            Integers::U16(values) => values.len(),
            Integers::U32(values) => values.len(),
            Integers::U64(values) => values.len(),
        }
    }
}

/// How a stored number of units (for example days or milliseconds) is converted to the unit of the target type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    None,
    /// Multiplies by this factor, to a finer unit.
    Multiply(i64),
    /// Requires milliseconds of whole days, then converts to this many units per day.
    WholeDays(i64),
    /// Multiplies a time of day by `factor`, and requires a result from 0 to below `below`.
    TimeOfDay {
        factor: i64,
        below: i64,
    },
}

const MILLIS_A_DAY: i64 = 86_400_000;

impl Conversion {
    /// Returns `None` if the number is out of range.
    pub fn apply(self, number: i64) -> Option<i64> {
        match self {
            Conversion::None => Some(number),
            Conversion::Multiply(factor) => number.checked_mul(factor),
            Conversion::WholeDays(units) => {
                let days = number / MILLIS_A_DAY;
                let legal = number % MILLIS_A_DAY == 0 && i32::try_from(days).is_ok();
                if legal { days.checked_mul(units) } else { None }
            }
            Conversion::TimeOfDay { factor, below } => {
                number.checked_mul(factor).filter(|number| (0..below).contains(number))
            }
        }
    }
}

pub struct Decimals {
    pub values: Unscaled,
    /// The most digits that the target type allows.
    pub precision: u8,
    /// The scale of `values`.
    pub scale: u8,
    /// The scale at which the values are written.
    pub written_scale: u8,
}

pub enum Unscaled {
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
    I128(ScalarBuffer<i128>),
    I256(ScalarBuffer<i256>),
    U64(ScalarBuffer<u64>),
}

impl Decimals {
    /// Whether the value is negative, and its digits.
    fn digits(&self, index: usize) -> (bool, String) {
        let number: i128 = match &self.values {
            Unscaled::I32(values) => values[index].into(),
            Unscaled::I64(values) => values[index].into(),
            Unscaled::U64(values) => values[index].into(),
            Unscaled::I128(values) => values[index],
            Unscaled::I256(values) => {
                let text = values[index].to_string();
                return match text.strip_prefix('-') {
                    Some(digits) => (true, digits.to_owned()),
                    None => (false, text),
                };
            }
        };
        (number < 0, number.unsigned_abs().to_string())
    }

    fn put(&self, index: usize, path: &str, out: &mut Vec<u8>) -> Result<()> {
        let (negative, digits) = self.digits(index);
        let Some(rescaled) = rescale(digits.as_bytes(), self.scale.into(), self.written_scale.into()) else {
            // Values are data and must not appear in messages.
            let expected = format!("{} digits after the point", self.written_scale);
            return Err(Fault::new("decimal_not_exact", path, expected, "further digits"));
        };
        if rescaled.len() > self.precision.into() {
            let expected = format!("at most {} digits", self.precision);
            return Err(Fault::new("decimal_too_wide", path, expected, rescaled.len().to_string()));
        }
        push_decimal(out, TAG_DECIMAL, negative, &rescaled, self.written_scale.into());
        Ok(())
    }
}

/// Byte strings in any Arrow layout.
pub enum ByteStrings {
    Offsets32 { offsets: ScalarBuffer<i32>, data: Buffer },
    Offsets64 { offsets: ScalarBuffer<i64>, data: Buffer },
    Views { views: ScalarBuffer<u128>, buffers: Vec<Buffer> },
    Fixed { width: usize, data: Buffer },
}

impl ByteStrings {
    /// The bytes of one value. Returns `None` if the array is inconsistent.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        match self {
            ByteStrings::Offsets32 { offsets, data } => {
                data.get(usize::try_from(offsets[index]).ok()?..usize::try_from(offsets[index + 1]).ok()?)
            }
            ByteStrings::Offsets64 { offsets, data } => {
                data.get(usize::try_from(offsets[index]).ok()?..usize::try_from(offsets[index + 1]).ok()?)
            }
            ByteStrings::Views { views, buffers } => view_bytes(views, index, buffers),
            ByteStrings::Fixed { width, data } => data.get(index * width..(index + 1) * width),
        }
    }
}

/// The bytes of a string view. A view is 16 bytes, least significant first: a length in 4 bytes, then up to 12 bytes of
/// data. Longer strings are in a buffer; their view has a prefix, the buffer's number and an offset, in 4 bytes each.
fn view_bytes<'a>(views: &'a ScalarBuffer<u128>, index: usize, buffers: &'a [Buffer]) -> Option<&'a [u8]> {
    let view = views[index];
    let length = view as u32 as usize;
    if length <= 12 {
        return views.inner().get(16 * index + 4..16 * index + 4 + length);
    }
    let buffer = buffers.get((view >> 64) as u32 as usize)?;
    let offset = (view >> 96) as u32 as usize;
    buffer.get(offset..offset.checked_add(length)?).filter(|bytes| has_prefix(view, bytes))
}

/// Whether the prefix in the view of a long string is equal to the first four bytes of the string.
#[inline(always)]
pub fn has_prefix(view: u128, bytes: &[u8]) -> bool {
    bytes.first_chunk::<4>() == Some(&((view >> 32) as u32).to_le_bytes())
}

/// Where the elements of each list lie in the child array.
pub enum Ranges {
    Offsets32(ScalarBuffer<i32>),
    Offsets64(ScalarBuffer<i64>),
    Views32 { offsets: ScalarBuffer<i32>, sizes: ScalarBuffer<i32> },
    Views64 { offsets: ScalarBuffer<i64>, sizes: ScalarBuffer<i64> },
    Fixed(usize),
}

impl Ranges {
    /// The range of one list's elements in a child array of length `children`. Returns `None` if the array is
    /// inconsistent.
    fn get(&self, index: usize, children: usize) -> Option<std::ops::Range<usize>> {
        let (start, end) = match self {
            Ranges::Offsets32(offsets) => (offsets[index].into(), offsets[index + 1].into()),
            Ranges::Offsets64(offsets) => (offsets[index], offsets[index + 1]),
            Ranges::Views32 { offsets, sizes } => {
                (offsets[index].into(), i64::from(offsets[index]) + i64::from(sizes[index]))
            }
            Ranges::Views64 { offsets, sizes } => (offsets[index], offsets[index].checked_add(sizes[index])?),
            Ranges::Fixed(width) => return Some(index * width..(index + 1) * width).filter(|r| r.end <= children),
        };
        let (start, end) = (usize::try_from(start).ok()?, usize::try_from(end).ok()?);
        (start <= end && end <= children).then_some(start..end)
    }
}

impl Column {
    pub fn is_null(&self, index: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(index))
    }

    /// Appends the cell of one value. `out` holds the cells of the same row only. Refuses a null in a required place, a
    /// value that its type or mode does not allow, and a row beyond the size limit.
    pub fn put(&self, index: usize, out: &mut Vec<u8>) -> Result<()> {
        if self.is_null(index) {
            return self.put_null(out);
        }
        match &self.values {
            Values::Nulls => return self.put_null(out),
            Values::Boolean(values) => {
                push_cell(out, TAG_BOOLEAN, if values.value(index) { b"true" } else { b"false" });
            }
            Values::Integers { tag, values, conversion } => {
                let stored = values.get(index).ok_or_else(|| self.invalid("an integer"))?;
                let number = conversion.apply(stored).ok_or_else(|| self.out_of_range())?;
                push_integer(out, *tag, number);
            }
            Values::Floats { tag, values } => values.push(index, *tag, out),
            Values::Decimals(decimals) => decimals.put(index, &self.path, out)?,
            Values::Bytes { tag, values, text } => self.put_bytes(*tag, self.bytes(values, index)?, *text, out)?,
            Values::Struct(fields) => {
                push_nested(out, TAG_STRUCT, |out| fields.iter().try_for_each(|field| field.put(index, out)))?;
            }
            Values::List { ranges, element } => {
                let range = ranges.get(index, element.len).ok_or_else(|| self.invalid("list offsets"))?;
                push_nested(out, TAG_LIST, |out| {
                    range.into_iter().try_for_each(|at| {
                        element.put(at, out)?;
                        self.check_size(out)
                    })
                })?;
            }
            Values::Map { ranges, key, value } => self.put_map(ranges, key, value, index, out)?,
            Values::Variant { metadata, value, mode, depth } => {
                let (metadata, value) = (self.variant_part(metadata, index)?, self.variant_part(value, index)?);
                variant::push_variant(out, metadata, value, *mode, *depth)
                    .map_err(|fault| Fault::new(fault.code, &self.path, fault.expected, fault.got))?;
            }
            Values::Dictionary { keys, values } => {
                return values.put(self.dictionary_index(keys, values.len, index)?, out);
            }
            Values::RunEnds { ends, offset, values } => {
                return values.put(self.run_index(ends, values.len, offset + index)?, out);
            }
        }
        self.check_size(out)
    }

    fn put_null(&self, out: &mut Vec<u8>) -> Result<()> {
        match self.null_code {
            Some(code) => Err(Fault::new(code, &self.path, "a value", "null")),
            None => {
                out.push(TAG_NULL);
                Ok(())
            }
        }
    }

    fn bytes<'a>(&self, values: &'a ByteStrings, index: usize) -> Result<&'a [u8]> {
        values.get(index).ok_or_else(|| self.invalid("offsets within the buffer"))
    }

    fn put_bytes(&self, tag: u8, bytes: &[u8], text: Option<Mode>, out: &mut Vec<u8>) -> Result<()> {
        if bytes.len() > ROW_SIZE_MAX_BYTES {
            return Err(self.too_large(bytes.len()));
        }
        let Some(mode) = text else {
            push_cell(out, tag, bytes);
            return Ok(());
        };
        let text = strings::to_utf8(bytes).map_err(|refusal| self.refused_string(refusal))?;
        match mode {
            Mode::Stored => push_cell(out, tag, bytes),
            Mode::Portable => {
                let normal = strings::to_portable(text).map_err(|refusal| self.refused_string(refusal))?;
                push_cell(out, tag, normal.as_bytes());
            }
        }
        Ok(())
    }

    fn put_map(&self, ranges: &Ranges, key: &Column, value: &Column, index: usize, out: &mut Vec<u8>) -> Result<()> {
        let range = ranges.get(index, key.len.min(value.len)).ok_or_else(|| self.invalid("map offsets"))?;
        push_nested(out, TAG_MAP, |out| {
            let first = out.len();
            let mut entries = Vec::with_capacity(range.len().min(1024));
            for at in range {
                let start = out.len();
                key.put(at, out)?;
                let key_end = out.len();
                value.put(at, out)?;
                entries.push((start, key_end, out.len()));
                self.check_size(out)?;
            }
            let key_cell = |&(start, key_end, _): &(usize, usize, usize)| &out[start..key_end];
            entries.sort_by(|a, b| key_cell(a).cmp(key_cell(b)));
            if entries.windows(2).any(|pair| key_cell(&pair[0]) == key_cell(&pair[1])) {
                return Err(Fault::new("map_key_duplicate", &self.path, "distinct keys", "one key twice"));
            }
            let sorted: Vec<u8> = entries.iter().flat_map(|(start, _, end)| &out[*start..*end]).copied().collect();
            out[first..].copy_from_slice(&sorted);
            Ok(())
        })
    }

    /// Metadata or value of a variant. Refuses a null inside a variant that is not null.
    fn variant_part<'a>(&self, part: &'a Column, index: usize) -> Result<&'a [u8]> {
        let null = || Fault::new("variant_malformed", &self.path, "metadata and value", "null");
        if part.is_null(index) {
            return Err(null());
        }
        match &part.values {
            Values::Bytes { values, .. } => self.bytes(values, index),
            Values::Dictionary { keys, values } => {
                self.variant_part(values, self.dictionary_index(keys, values.len, index)?)
            }
            Values::RunEnds { ends, offset, values } => {
                self.variant_part(values, self.run_index(ends, values.len, offset + index)?)
            }
            // `bind_variant` binds both parts as binary, so no other values reach this arm.
            _ => Err(null()),
        }
    }

    /// The position of a value in its dictionary of `values` values.
    fn dictionary_index(&self, keys: &Integers, values: usize, index: usize) -> Result<usize> {
        let key = keys.get(index).and_then(|key| usize::try_from(key).ok()).filter(|key| *key < values);
        key.ok_or_else(|| self.invalid("a dictionary index in range"))
    }

    /// The position of the run that holds a value.
    fn run_index(&self, ends: &Integers, runs: usize, index: usize) -> Result<usize> {
        find_run(ends, runs.min(ends.len()), index).ok_or_else(|| self.invalid("run ends in range"))
    }

    fn check_size(&self, out: &[u8]) -> Result<()> {
        if out.len() > ROW_SIZE_MAX_BYTES { Err(self.too_large(out.len())) } else { Ok(()) }
    }

    pub fn too_large(&self, size: usize) -> Fault {
        Fault::new("row_too_large", &self.path, format!("at most {ROW_SIZE_MAX_BYTES} bytes"), size.to_string())
    }

    fn out_of_range(&self) -> Fault {
        Fault::new("value_out_of_range", &self.path, "a value in the range of its type", "a value outside of it")
    }

    fn invalid(&self, expected: &str) -> Fault {
        Fault::new("arrow_invalid", &self.path, expected, "an array that contradicts itself")
    }

    fn refused_string(&self, refusal: Refusal) -> Fault {
        match refusal {
            Refusal::NotUtf8 => Fault::new("string_not_utf8", &self.path, "well-formed UTF-8", "other bytes"),
            Refusal::Unassigned(character) => Fault::new(
                "string_unassigned_code_point",
                &self.path,
                "code points assigned in Unicode 14.0.0",
                format!("U+{:04X}", u32::from(character)),
            ),
        }
    }
}

/// Finds the run that holds a logical index, by binary search in the ends of the first `runs` runs.
fn find_run(ends: &Integers, runs: usize, index: usize) -> Option<usize> {
    let index = i64::try_from(index).ok()?;
    let (mut low, mut high) = (0, runs);
    while low < high {
        let middle = low + (high - low) / 2;
        if ends.get(middle)? <= index { low = middle + 1 } else { high = middle }
    }
    (low < runs).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_found_by_its_end() {
        let ends = Integers::I32(vec![2, 5, 6].into());
        let found: Vec<_> = (0..7).map(|index| find_run(&ends, 3, index)).collect();
        assert_eq!(found, [Some(0), Some(0), Some(1), Some(1), Some(1), Some(2), None]);
    }
}
