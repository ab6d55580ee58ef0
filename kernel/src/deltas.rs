//! Lengths that a page has as differences, added up before a decoder sets memory aside for them.

use crate::claims::runs::{BLOCK, next_block};

/// What a length needs at most: decoders have it in 32 bits.
const WIDTH_MAX: u8 = 32;

/// The sum of lengths in the encoding DELTA_BINARY_PACKED, and where they end. `None` where they cannot be read, are more
/// than `most`, or one of them is negative.
pub fn lengths(data: &[u8], most: u64) -> Option<(u64, usize)> {
    let mut reader = Reader { data, at: 0 };
    let (block, minis, count) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let mut length = i32::try_from(reader.zigzag()?).ok()?;
    let each = block.checked_div(minis).filter(|each| *each > 0 && each.is_multiple_of(32) && each * minis == block)?;
    let mut left = Some(count).filter(|count| *count <= most)?;
    let mut sum = 0;
    if left > 0 {
        sum = u64::try_from(length).ok()?;
        left -= 1;
    }
    while left > 0 {
        let step = i32::try_from(reader.zigzag()?).ok()?;
        for width in reader.take(minis)? {
            if left == 0 {
                break;
            }
            let packed = match *width {
                0 => &[],
                1..=WIDTH_MAX => reader.take(each.checked_mul(u64::from(*width))? / 8)?,
                _ => return None,
            };
            let taken = left.min(each);
            sum += added(packed, usize::from(*width), taken, step, &mut length)?;
            left -= taken;
        }
    }
    Some((sum, reader.at))
}

/// The sum of the next lengths; `length` is the last one before and after.
fn added(mut packed: &[u8], width: usize, count: u64, step: i32, length: &mut i32) -> Option<u64> {
    let (mut block, mut left, mut sum) = ([0; BLOCK], count, 0_u64);
    while left > 0 {
        if width > 0 {
            packed = next_block(packed, width, &mut block)?;
        }
        let taken = left.min(BLOCK as u64);
        for more in &block[..taken as usize] {
            *length = length.wrapping_add(step).wrapping_add(*more as i32);
            sum += u64::try_from(*length).ok()?;
        }
        left -= taken;
    }
    Some(sum)
}

struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, size: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(size).ok()?)?;
        let found = self.data.get(self.at..end)?;
        self.at = end;
        Some(found)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_added_up_and_end_where_their_blocks_end() {
        // A block of 128 in four parts, three lengths: 5, 7 and 6. The least difference is -1.
        let data = [128, 1, 4, 3, 10, 1, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 99];
        assert_eq!(lengths(&data, 3), Some((18, 18)));
        assert_eq!(lengths(&data, 2), None);
        assert_eq!(lengths(&data[..17], 3), None);
        // One length, and none at all: there is no block.
        assert_eq!(lengths(&[128, 1, 4, 1, 10], 1), Some((5, 5)));
        assert_eq!(lengths(&[128, 1, 4, 0, 0], 1), Some((0, 5)));
    }

    #[test]
    fn many_lengths_may_take_few_bytes() {
        // 1,000 lengths from 0 on, each one more than the last: 1,024 in a block of one part, which takes no bit.
        let data = [128, 8, 1, 232, 7, 0, 2, 0];
        assert_eq!(lengths(&data, 1_000), Some((499_500, 8)));
        assert_eq!(lengths(&data, 999), None);
    }

    #[test]
    fn what_decoders_cannot_hold_is_none() {
        // 2^40 lengths; a negative one; numbers of 33 bits; blocks of nothing; more parts than there are bytes.
        for data in [
            &[128, 1, 4, 128, 128, 128, 128, 128, 32, 0][..],
            &[128, 1, 4, 1, 1],
            &[128, 1, 4, 2, 0, 0, 33, 0, 0, 0],
            &[0, 4, 2, 0, 0],
            &[128, 128, 128, 128, 16, 128, 128, 128, 128, 8, 2, 0, 0],
        ] {
            assert_eq!(lengths(data, 1 << 41), None, "{data:?}");
        }
    }
}
