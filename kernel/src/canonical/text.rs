//! Canonical number texts (spec/canonical.md sections 5.1 and 5.2), and the framing of cells.

pub const TAG_NULL: u8 = 0x00;
pub const TAG_BOOLEAN: u8 = 0x01;
pub const TAG_INTEGER: u8 = 0x02;
pub const TAG_DECIMAL: u8 = 0x03;
pub const TAG_FLOAT: u8 = 0x04;
pub const TAG_DOUBLE: u8 = 0x05;
pub const TAG_DATE: u8 = 0x06;
pub const TAG_TIME: u8 = 0x07;
pub const TAG_TIMESTAMP: u8 = 0x08;
pub const TAG_TIMESTAMPTZ: u8 = 0x09;
pub const TAG_TIMESTAMP_NS: u8 = 0x0a;
pub const TAG_TIMESTAMPTZ_NS: u8 = 0x0b;
pub const TAG_STRING: u8 = 0x0c;
pub const TAG_UUID: u8 = 0x0d;
pub const TAG_FIXED: u8 = 0x0e;
pub const TAG_BINARY: u8 = 0x0f;
pub const TAG_STRUCT: u8 = 0x10;
pub const TAG_LIST: u8 = 0x11;
pub const TAG_MAP: u8 = 0x12;
pub const TAG_VARIANT: u8 = 0x13;
pub const TAG_OBJECT: u8 = 0x14;
pub const TAG_GEOMETRY: u8 = 0x15;
pub const TAG_GEOGRAPHY: u8 = 0x16;
pub const TAG_TIME_NS: u8 = 0x17;
/// The most bytes before the content of a cell: one byte of tag, and up to five bytes of length (unsigned LEB128).
pub const HEADER_MAX_BYTES: usize = 6;
const ASCII_ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight decimal digits of `number` < 10^8 as byte values, most significant digit in the lowest byte.
#[inline(always)]
fn digits8(number: u32) -> u64 {
    // Both halves are divided by 100 at once, then all four pairs by 10: each time by a multiplication and a shift.
    let halves = u64::from(number / 10_000) | (u64::from(number % 10_000) << 32);
    let hundreds = (halves.wrapping_mul(10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = (pairs.wrapping_mul(103) >> 10) & 0x000f_000f_000f_000f;
    tens | ((pairs - 10 * tens) << 8)
}

/// Writes the cell of a number to the front of `slot`, with `scale` digits after the point. Returns the length of the
/// cell. Returns `None` if the magnitude is 10^8 or more, the scale is above 7, or the slot is too small. Bytes behind
/// the cell are undefined.
#[inline(always)]
pub fn write_short_number(slot: &mut [u8], tag: u8, number: i64, scale: u32) -> Option<usize> {
    let magnitude = number.unsigned_abs();
    if magnitude >= 100_000_000 || scale > 7 {
        return None;
    }
    let slot = slot.first_chunk_mut::<SHORT_CELL_ROOM>()?;
    let digits = digits8(magnitude as u32);
    // At least one digit precedes the point, so at most 7 - scale zeros are leading.
    let leading = ((digits | 1 << 63).trailing_zeros() >> 3).min(7 - scale);
    let text = (digits | ASCII_ZEROS) >> (leading * 8);
    let sign = usize::from(number < 0);
    slot[2] = b'-';
    slot[2 + sign..10 + sign].copy_from_slice(&text.to_le_bytes());
    let mut length = sign + (8 - leading) as usize;
    if scale > 0 {
        // The fraction moves by one byte to make room for the point; it has at most seven digits.
        let whole = 8 - leading - scale;
        let fraction = text >> (8 * whole) << 8 | u64::from(b'.');
        // `min` changes nothing; it shows the compiler that the next store is in bounds.
        let point = (2 + sign + whole as usize).min(SHORT_CELL_ROOM - 8);
        slot[point..point + 8].copy_from_slice(&fraction.to_le_bytes());
        length += 1;
    }
    slot[0] = tag;
    slot[1] = length as u8;
    Some(2 + length)
}

/// The bytes that `write_short_number` may write: header, sign, seven digits before the point and an eight-byte store
/// at the point.
const SHORT_CELL_ROOM: usize = 18;

/// The decimal digits of a number below 10^16. Returns 16 bytes, and how many bytes at their front are the digits.
#[inline(always)]
pub fn text16(magnitude: u64) -> ([u8; 16], usize) {
    let high = u128::from(digits8((magnitude / 100_000_000) as u32));
    let low = u128::from(digits8((magnitude % 100_000_000) as u32));
    let digits = high | (low << 64);
    let leading = (digits | 1 << 127).trailing_zeros() >> 3;
    let ascii = u128::from(ASCII_ZEROS) | (u128::from(ASCII_ZEROS) << 64);
    (((digits | ascii) >> (leading * 8)).to_le_bytes(), (16 - leading) as usize)
}

/// Appends `tag`, the length of `body` and `body`.
pub fn push_cell(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    push_uvarint(out, body.len());
    out.extend_from_slice(body);
}

/// Appends a number as unsigned LEB128.
pub fn push_uvarint(out: &mut Vec<u8>, mut number: usize) {
    while number > 0x7f {
        out.push(number as u8 & 0x7f | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a cell. `body` appends the content of the cell. The length of the content is inserted afterwards, when it
/// is known.
pub fn push_nested<E>(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
    out.push(tag);
    let length_at = out.len();
    out.push(0);
    body(out)?;
    let length = out.len() - length_at - 1;
    if length <= 0x7f {
        out[length_at] = length as u8;
    } else {
        let mut header = Vec::with_capacity(HEADER_MAX_BYTES);
        push_uvarint(&mut header, length);
        out.splice(length_at..=length_at, header);
    }
    Ok(())
}

/// Appends the cell of any integer.
pub fn push_integer(out: &mut Vec<u8>, tag: u8, number: i64) {
    let mut cell = [0; SHORT_CELL_ROOM];
    if let Some(length) = write_short_number(&mut cell, tag, number, 0) {
        out.extend_from_slice(&cell[..length]);
    } else {
        push_decimal(out, tag, number < 0, number.unsigned_abs().to_string().as_bytes(), 0);
    }
}

/// Appends the cell of a decimal. `digits` are those of the unscaled value: no leading zeros, "0" for zero. The last
/// `scale` digits are written after the point.
pub fn push_decimal(out: &mut Vec<u8>, tag: u8, negative: bool, digits: &[u8], scale: usize) {
    let leading_zeros = (scale + 1).saturating_sub(digits.len());
    let length = usize::from(negative) + leading_zeros + digits.len() + usize::from(scale > 0);
    out.push(tag);
    push_uvarint(out, length);
    if negative {
        out.push(b'-');
    }
    out.resize(out.len() + leading_zeros, b'0');
    out.extend_from_slice(digits);
    if scale > 0 {
        let point = out.len() - scale;
        out.insert(point, b'.');
    }
}

/// Converts a decimal's digits from one scale to another. Returns `None` if a digit other than zero would be lost.
pub fn rescale(digits: &[u8], from: usize, to: usize) -> Option<Vec<u8>> {
    if digits == b"0" || from == to {
        return Some(digits.to_vec());
    }
    if to > from {
        let mut longer = digits.to_vec();
        longer.resize(digits.len() + to - from, b'0');
        return Some(longer);
    }
    let dropped = from - to;
    let kept = digits.len().checked_sub(dropped).filter(|kept| *kept > 0)?;
    digits[kept..].iter().all(|digit| *digit == b'0').then(|| digits[..kept].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cell of a number, by Rust's own formatting.
    fn plain_cell(tag: u8, number: i128, scale: usize) -> Vec<u8> {
        let mut text = number.unsigned_abs().to_string();
        while text.len() <= scale {
            text.insert(0, '0');
        }
        if scale > 0 {
            text.insert(text.len() - scale, '.');
        }
        if number < 0 {
            text.insert(0, '-');
        }
        let mut cell = vec![tag, text.len() as u8];
        cell.extend_from_slice(text.as_bytes());
        cell
    }

    fn numbers() -> Vec<i64> {
        let mut numbers: Vec<i64> = (-1200..1200).collect();
        for power in 0..19 {
            let step = 10i64.pow(power);
            for near in [-2, -1, 0, 1, 2] {
                numbers.extend([step + near, -(step + near), step / 7 * 3 + near]);
            }
        }
        numbers.extend([i64::MIN, i64::MAX]);
        numbers
    }

    #[test]
    fn short_cells_equal_plain_formatting_at_every_scale() {
        for number in numbers() {
            for scale in 0..=7 {
                let mut cell = [0xee; SHORT_CELL_ROOM];
                if let Some(length) = write_short_number(&mut cell, TAG_DECIMAL, number, scale) {
                    assert_eq!(
                        cell[..length],
                        plain_cell(TAG_DECIMAL, number.into(), scale as usize),
                        "{number}@{scale}"
                    );
                } else {
                    assert!(number.unsigned_abs() >= 100_000_000);
                }
            }
        }
    }

    #[test]
    fn sixteen_digits_equal_plain_formatting() {
        for number in numbers().into_iter().filter(|n| *n >= 0 && *n < 10_000_000_000_000_000) {
            let (text, length) = text16(number as u64);
            assert_eq!(text[..length], *number.to_string().as_bytes());
        }
    }

    #[test]
    fn any_integer_equals_plain_formatting() {
        for number in numbers() {
            let mut out = Vec::new();
            push_integer(&mut out, TAG_INTEGER, number);
            assert_eq!(out, plain_cell(TAG_INTEGER, number.into(), 0));
        }
    }

    #[test]
    fn rescaling_is_exact_or_refused() {
        assert_eq!(rescale(b"15000", 4, 2).as_deref(), Some(&b"150"[..]));
        assert_eq!(rescale(b"15001", 4, 2), None);
        assert_eq!(rescale(b"15", 1, 3).as_deref(), Some(&b"1500"[..]));
        assert_eq!(rescale(b"5", 2, 1), None);
        assert_eq!(rescale(b"0", 9, 0).as_deref(), Some(&b"0"[..]));
    }

    #[test]
    fn a_nested_length_over_one_byte_is_inserted() {
        let mut out = vec![9];
        push_nested(&mut out, TAG_LIST, |out| {
            out.extend_from_slice(&[7; 300]);
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(out[..4], [9, TAG_LIST, 0xac, 0x02]);
        assert_eq!(out.len(), 304);
    }
}
