//! Parquet variant values, decoded and written canonically (spec/canonical.md section 6).

use crate::canonical::schema::{Mode, NESTING_DEPTH_MAX, ROW_SIZE_MAX_BYTES};
use crate::canonical::strings::{self, Refusal};
use crate::canonical::text::*;
use std::borrow::Cow;

/// Why a variant is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct VariantFault {
    pub code: &'static str,
    pub expected: String,
    pub got: String,
}

type Result<T> = std::result::Result<T, VariantFault>;

fn variant_fault(code: &'static str, expected: impl Into<String>, got: impl Into<String>) -> VariantFault {
    VariantFault { code, expected: expected.into(), got: got.into() }
}

fn malformed(expected: impl Into<String>, got: impl Into<String>) -> VariantFault {
    variant_fault("variant_malformed", expected, got)
}

/// Appends the cell (tag, length and bytes) of a variant whose own depth is `depth`.
pub fn push_variant(out: &mut Vec<u8>, metadata: &[u8], value: &[u8], mode: Mode, depth: usize) -> Result<()> {
    let writer = Writer { names: read_names(metadata)?, mode };
    push_nested(out, TAG_VARIANT, |out| writer.put(out, value, depth + 1))
}

/// The field names in the metadata. Its header byte has the version in the low four bits, a bit for sorted names, an
/// unused bit, and the width of offsets less one in the high two bits.
fn read_names(metadata: &[u8]) -> Result<Vec<&str>> {
    let mut reader = Reader(metadata);
    let header = reader.byte()?;
    if header & 0x0f != 1 || header & 0x20 != 0 {
        return Err(malformed("metadata of version 1", format!("header {header:#04x}")));
    }
    let width = usize::from(header >> 6) + 1;
    let size = reader.number(width)?;
    let offsets = reader.numbers(size.checked_add(1), width)?;
    let bytes = reader.0;
    if offsets[0] != 0 || offsets[size] != bytes.len() {
        return Err(malformed(
            format!("offsets from 0 to {}", bytes.len()),
            format!("{} to {}", offsets[0], offsets[size]),
        ));
    }
    let names = offsets
        .windows(2)
        .map(|pair| {
            let name =
                bytes.get(pair[0]..pair[1]).ok_or_else(|| malformed("ascending offsets", format!("{pair:?}")))?;
            strings::to_utf8(name).map_err(|_| malformed("names in UTF-8", "other bytes"))
        })
        .collect::<Result<Vec<_>>>()?;
    if header & 0x10 != 0 && !names.is_sorted_by(|a, b| a < b) {
        return Err(malformed("sorted names, as the header declares", "another order"));
    }
    Ok(names)
}

/// Writes canonical cells of a variant with these field names.
struct Writer<'a> {
    names: Vec<&'a str>,
    mode: Mode,
}

impl Writer<'_> {
    /// Appends the cell of the value that fills `bytes` exactly.
    fn put(&self, out: &mut Vec<u8>, bytes: &[u8], depth: usize) -> Result<()> {
        if depth > NESTING_DEPTH_MAX {
            return Err(variant_fault("nesting_too_deep", format!("at most {NESTING_DEPTH_MAX} levels"), "more"));
        }
        if out.len() > ROW_SIZE_MAX_BYTES {
            return Err(variant_fault("row_too_large", format!("{ROW_SIZE_MAX_BYTES} bytes"), "more"));
        }
        let mut reader = Reader(bytes);
        let header = reader.byte()?;
        // The low two bits say which kind of value it is. The meaning of the other six bits depends on the kind.
        match header & 0x03 {
            0 => self.put_primitive(out, header >> 2, reader),
            1 => {
                let text = reader.take(usize::from(header >> 2))?;
                reader.require_end()?;
                self.put_string(out, text)
            }
            2 => self.put_object(out, header >> 2, reader, depth),
            _ => self.put_array(out, header >> 2, reader, depth),
        }
    }

    /// `kind` is the number of a primitive type in the Parquet variant encoding.
    fn put_primitive(&self, out: &mut Vec<u8>, kind: u8, mut reader: Reader<'_>) -> Result<()> {
        match kind {
            0 => out.push(TAG_NULL),
            1 => push_cell(out, TAG_BOOLEAN, b"true"),
            2 => push_cell(out, TAG_BOOLEAN, b"false"),
            3 => push_integer(out, TAG_INTEGER, reader.signed::<1>()?),
            4 => push_integer(out, TAG_INTEGER, reader.signed::<2>()?),
            5 => push_integer(out, TAG_INTEGER, reader.signed::<4>()?),
            6 => push_integer(out, TAG_INTEGER, reader.signed::<8>()?),
            7 => self.put_float::<8>(out, TAG_DOUBLE, &mut reader)?,
            8 => self.put_decimal(out, 4, 9, &mut reader)?,
            9 => self.put_decimal(out, 8, 18, &mut reader)?,
            10 => self.put_decimal(out, 16, 38, &mut reader)?,
            11 => push_integer(out, TAG_DATE, reader.signed::<4>()?),
            12 => push_integer(out, TAG_TIMESTAMPTZ, reader.signed::<8>()?),
            13 => push_integer(out, TAG_TIMESTAMP, reader.signed::<8>()?),
            14 => self.put_float::<4>(out, TAG_FLOAT, &mut reader)?,
            15 => {
                let size = reader.number(4)?;
                push_cell(out, TAG_BINARY, reader.take(size)?);
            }
            16 => {
                let size = reader.number(4)?;
                self.put_string(out, reader.take(size)?)?;
            }
            17 => {
                let micros = reader.signed::<8>()?;
                if !(0..86_400_000_000).contains(&micros) {
                    return Err(malformed("a time of day", micros.to_string()));
                }
                push_integer(out, TAG_TIME, micros);
            }
            18 => push_integer(out, TAG_TIMESTAMPTZ_NS, reader.signed::<8>()?),
            19 => push_integer(out, TAG_TIMESTAMP_NS, reader.signed::<8>()?),
            20 => push_cell(out, TAG_UUID, reader.take(16)?),
            _ => return Err(malformed("a known primitive type", kind.to_string())),
        }
        reader.require_end()
    }

    fn put_float<const N: usize>(&self, out: &mut Vec<u8>, tag: u8, reader: &mut Reader<'_>) -> Result<()> {
        if self.mode == Mode::Portable {
            return Err(variant_fault("portable_float", "no raw float", "one inside a variant"));
        }
        let mut bits = reader.array::<N>()?;
        bits.reverse();
        push_cell(out, tag, &bits);
        Ok(())
    }

    /// Reads a decimal of `width` bytes and at most `digits_max` digits, after a byte with its scale.
    fn put_decimal(&self, out: &mut Vec<u8>, width: usize, digits_max: usize, reader: &mut Reader<'_>) -> Result<()> {
        if self.mode == Mode::Portable {
            let expected = "decimals with a declared scale";
            return Err(variant_fault("portable_scale_undeclared", expected, "a decimal inside a variant"));
        }
        let scale = usize::from(reader.byte()?);
        let bytes = reader.take(width)?;
        let fill = if bytes[width - 1] & 0x80 == 0 { 0 } else { 0xff };
        let mut wide = [fill; 16];
        wide[..width].copy_from_slice(bytes);
        let unscaled = i128::from_le_bytes(wide);
        let digits = unscaled.unsigned_abs().to_string();
        if scale > 38 || digits.len() > digits_max {
            return Err(malformed(
                format!("scale up to 38, {digits_max} digits"),
                format!("{scale}, {}", digits.len()),
            ));
        }
        push_decimal(out, TAG_DECIMAL, unscaled < 0, digits.as_bytes(), scale);
        Ok(())
    }

    fn put_string(&self, out: &mut Vec<u8>, bytes: &[u8]) -> Result<()> {
        let text = strings::to_utf8(bytes).map_err(string_fault)?;
        push_cell(out, TAG_STRING, self.normalize(text)?.as_bytes());
        Ok(())
    }

    /// Converts the string to NFC in portable mode, and leaves it as it is in stored mode.
    fn normalize<'t>(&self, text: &'t str) -> Result<Cow<'t, str>> {
        match self.mode {
            Mode::Stored => Ok(Cow::Borrowed(text)),
            Mode::Portable => strings::to_portable(text).map_err(string_fault),
        }
    }

    fn put_array(&self, out: &mut Vec<u8>, header: u8, mut reader: Reader<'_>, depth: usize) -> Result<()> {
        if header >> 3 != 0 {
            return Err(malformed("no unused header bit", format!("{header:#x}")));
        }
        let width = usize::from(header & 0x03) + 1;
        let size = reader.number(if header & 0x04 == 0 { 1 } else { 4 })?;
        let offsets = reader.numbers(size.checked_add(1), width)?;
        let bytes = reader.0;
        if offsets[0] != 0 || offsets[size] != bytes.len() {
            let got = format!("{} to {}", offsets[0], offsets[size]);
            return Err(malformed(format!("offsets from 0 to {}", bytes.len()), got));
        }
        push_nested(out, TAG_LIST, |out| {
            offsets.windows(2).try_for_each(|pair| {
                let element = bytes.get(pair[0]..pair[1]);
                self.put(out, element.ok_or_else(|| malformed("ascending offsets", format!("{pair:?}")))?, depth + 1)
            })
        })
    }

    fn put_object(&self, out: &mut Vec<u8>, header: u8, mut reader: Reader<'_>, depth: usize) -> Result<()> {
        if header >> 5 != 0 {
            return Err(malformed("no unused header bit", format!("{header:#x}")));
        }
        let size = reader.number(if header & 0x10 == 0 { 1 } else { 4 })?;
        let ids = reader.numbers(Some(size), usize::from(header >> 2 & 0x03) + 1)?;
        let offsets = reader.numbers(size.checked_add(1), usize::from(header & 0x03) + 1)?;
        let values = split_values(&offsets, reader.0)?;
        let names = ids
            .iter()
            .map(|id| self.names.get(*id).copied().ok_or_else(|| malformed("an id of the dictionary", id.to_string())))
            .collect::<Result<Vec<_>>>()?;
        if !names.is_sorted_by(|a, b| a < b) {
            return Err(malformed("fields in ascending order of their names", "another order"));
        }
        let mut fields =
            names.into_iter().zip(values).map(|(n, v)| Ok((self.normalize(n)?, v))).collect::<Result<Vec<_>>>()?;
        // Normalizing can change the order of names, and make two of them equal.
        fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        if fields.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
            return Err(variant_fault("variant_key_duplicate", "distinct names", "one twice"));
        }
        push_nested(out, TAG_OBJECT, |out| {
            fields.iter().try_for_each(|(name, value)| {
                push_cell(out, TAG_STRING, name.as_bytes());
                self.put(out, value, depth + 1)
            })
        })
    }
}

/// Splits an object's values, which may be in any order but must fill `bytes` without gap or overlap.
fn split_values<'a>(offsets: &[usize], bytes: &'a [u8]) -> Result<Vec<&'a [u8]>> {
    let (total, starts) = offsets.split_last().ok_or_else(|| malformed("offsets", "none"))?;
    if *total != bytes.len() {
        return Err(malformed(format!("{total} bytes of fields"), bytes.len().to_string()));
    }
    let mut borders = offsets.to_vec();
    borders.sort_unstable();
    if borders[0] != 0 || borders.windows(2).any(|pair| pair[0] == pair[1]) || borders.last() != Some(total) {
        return Err(malformed("values side by side", "a gap, an overlap or an empty value"));
    }
    Ok(starts
        .iter()
        .map(|start| {
            // A greater border always exists: `total` is the greatest border, and every start is below it, because the
            // borders are distinct.
            let next = borders[borders.partition_point(|border| border <= start)];
            &bytes[*start..next]
        })
        .collect())
}

fn string_fault(refusal: Refusal) -> VariantFault {
    match refusal {
        Refusal::NotUtf8 => variant_fault("string_not_utf8", "well-formed UTF-8", "other bytes"),
        Refusal::Unassigned(character) => variant_fault(
            "string_unassigned_code_point",
            "code points assigned in Unicode 14.0.0",
            format!("U+{:04X}", u32::from(character)),
        ),
    }
}

/// Reads from the front of the bytes that are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, size: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(size)
            .ok_or_else(|| malformed(format!("{size} bytes"), self.0.len().to_string()))?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// A little-endian unsigned number of 1 to 4 bytes.
    fn number(&mut self, width: usize) -> Result<usize> {
        Ok(self.take(width)?.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// A little-endian signed number.
    fn signed<const N: usize>(&mut self) -> Result<i64> {
        let bytes = self.array::<N>()?;
        let mut wide = [if bytes[N - 1] & 0x80 == 0 { 0 } else { 0xff }; 8];
        wide[..N].copy_from_slice(&bytes);
        Ok(i64::from_le_bytes(wide))
    }

    /// Reads `count` numbers. Fails before allocating if the bytes cannot hold them. `count` is `None` if computing it
    /// overflowed.
    fn numbers(&mut self, count: Option<usize>, width: usize) -> Result<Vec<usize>> {
        let size = count.and_then(|count| count.checked_mul(width));
        let size = size.ok_or_else(|| malformed("a number of bytes below 2^64", "more"))?;
        let bytes = self.take(size)?;
        bytes.chunks_exact(width).map(|chunk| Reader(chunk).number(width)).collect()
    }

    fn require_end(&self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(malformed("nothing after the value", format!("{} bytes", self.0.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metadata without names.
    const EMPTY: &[u8] = &[0x01, 0x00, 0x00];
    /// Metadata with the one name "a".
    const A: &[u8] = &[0x01, 0x01, 0x00, 0x01, b'a'];

    fn cell(metadata: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        push_variant(&mut out, metadata, value, Mode::Stored, 1).map(|()| out)
    }

    #[test]
    fn absent_null_and_empty_differ() {
        assert_eq!(cell(EMPTY, &[0x00]).unwrap(), [0x13, 0x01, 0x00]);
        assert_eq!(cell(EMPTY, &[0x02, 0x00, 0x00]).unwrap(), [0x13, 0x02, 0x14, 0x00]);
        let null = cell(A, &[0x02, 0x01, 0x00, 0x00, 0x01, 0x00]).unwrap();
        assert_eq!(null, [0x13, 0x06, 0x14, 0x04, 0x0c, 0x01, 0x61, 0x00]);
        let empty = cell(A, &[0x02, 0x01, 0x00, 0x00, 0x01, 0x01]).unwrap();
        assert_eq!(empty, [0x13, 0x07, 0x14, 0x05, 0x0c, 0x01, 0x61, 0x0c, 0x00]);
    }

    #[test]
    fn integer_widths_leave_no_trace() {
        let one = [0x13, 0x03, 0x02, 0x01, b'1'];
        assert_eq!(cell(EMPTY, &[3 << 2, 1]).unwrap(), one);
        assert_eq!(cell(EMPTY, &[4 << 2, 1, 0]).unwrap(), one);
        assert_eq!(cell(EMPTY, &[6 << 2, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap(), one);
    }

    #[test]
    fn values_that_share_bytes_are_refused() {
        let ab = [0x01, 0x02, 0x00, 0x01, 0x02, b'a', b'b'];
        let shared = [0x02, 0x02, 0x00, 0x01, 0x00, 0x00, 0x01, 0x00];
        assert_eq!(cell(&ab, &shared).unwrap_err().code, "variant_malformed");
        let apart = [0x02, 0x02, 0x00, 0x01, 0x01, 0x00, 0x02, 0x04, 0x00];
        assert!(cell(&ab, &apart).is_ok());
    }

    #[test]
    fn no_byte_string_panics() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..200_000 {
            let metadata: Vec<u8> =
                (0..random() % 12).map(|_| [0, 1, 2, 0x11, 0x61, 0x62, 255][random() % 7]).collect();
            let value: Vec<u8> = (0..random() % 24).map(|_| (random() % 70) as u8).collect();
            if let Ok(cell) = cell(&metadata, &value) {
                assert_eq!(cell[0], TAG_VARIANT);
            }
        }
    }
}
