//! Delta encodings: checks that all readers decode them alike, and sums lengths before a decoder allocates memory.

use crate::parquet::format::runs::{BLOCK, next_block};
use parquet::basic::{Encoding, Type as Physical};

/// The most bits of a packed difference, for 32-bit numbers and for lengths.
const WIDTH_MAX: u8 = 32;
/// The most bits of a packed difference, for 64-bit numbers.
const LONG_WIDTH_MAX: u8 = 64;
/// Java reads the counts of the header as signed 32-bit numbers, and overflows for larger ones.
const COUNTED_MAX: u64 = i32::MAX as u64;

/// Whether all readers decode these delta-encoded values alike: every varint is as short as possible, and there are
/// exactly `count` values. True for other encodings.
pub fn is_read_alike(data: &[u8], encoding: Encoding, physical: Physical, count: u64) -> bool {
    let found = match encoding {
        Encoding::DELTA_BINARY_PACKED if physical == Physical::INT32 => find_end(data, count, WIDTH_MAX),
        Encoding::DELTA_BINARY_PACKED => find_end(data, count, LONG_WIDTH_MAX),
        Encoding::DELTA_LENGTH_BYTE_ARRAY => find_end(data, count, WIDTH_MAX),
        Encoding::DELTA_BYTE_ARRAY => {
            find_end(data, count, WIDTH_MAX).and_then(|end| find_end(&data[end..], count, WIDTH_MAX))
        }
        _ => Some(0),
    };
    found.is_some()
}

/// Finds the end of `count` numbers in the encoding DELTA_BINARY_PACKED. Returns `None` if there is another number of
/// them, or if readers may decode them differently.
fn find_end(data: &[u8], count: u64, width_max: u8) -> Option<usize> {
    let mut reader = Reader { data, at: 0 };
    let header = read_header(&mut reader).filter(|header| header.count == count)?;
    each_miniblock(&mut reader, &header, width_max, |_, _, _, _| Some(()))?;
    Some(reader.at)
}

/// The sum of lengths in the encoding DELTA_BINARY_PACKED, and where they end. Returns `None` if they cannot be read,
/// are more than `most`, or include a negative length.
pub fn sum_lengths(data: &[u8], most: u64) -> Option<(u64, usize)> {
    let mut reader = Reader { data, at: 0 };
    let header = read_header(&mut reader).filter(|header| header.count <= most)?;
    let mut length = i32::try_from(header.first).ok()?;
    let mut sum = if header.count > 0 { u64::try_from(length).ok()? } else { 0 };
    each_miniblock(&mut reader, &header, WIDTH_MAX, |packed, width, taken, min_delta| {
        sum += add_lengths(packed, width, taken, i32::try_from(min_delta).ok()?, &mut length)?;
        Some(())
    })?;
    Some((sum, reader.at))
}

/// The header before the blocks of differences.
pub struct Header {
    /// The number of miniblocks in a block.
    miniblocks: u64,
    /// The number of differences in a miniblock.
    numbers: u64,
    /// The number of all values.
    pub count: u64,
    /// The first value. It is stored here, before the differences.
    pub first: i64,
}

pub fn read_header(reader: &mut Reader<'_>) -> Option<Header> {
    let (block, miniblocks, count) = (reader.count()?, reader.count()?, reader.count()?);
    let numbers = block
        .checked_div(miniblocks)
        .filter(|numbers| *numbers > 0 && numbers.is_multiple_of(32) && numbers * miniblocks == block)?;
    Some(Header { miniblocks, numbers, count, first: reader.zigzag()? })
}

/// Gives each miniblock to `each`: its bytes, the bit width, how many of its numbers are used, and the least difference
/// (`min_delta`), which is added to each of its numbers.
pub fn each_miniblock<'a>(
    reader: &mut Reader<'a>,
    header: &Header,
    width_max: u8,
    mut each: impl FnMut(&'a [u8], usize, u64, i64) -> Option<()>,
) -> Option<()> {
    let mut left = header.count.saturating_sub(1);
    while left > 0 {
        let min_delta = reader.zigzag()?;
        for width in reader.take(header.miniblocks)? {
            if left == 0 {
                break;
            }
            let width = Some(*width).filter(|width| *width <= width_max)?;
            let packed = reader.take(header.numbers.checked_mul(u64::from(width))? / 8)?;
            let taken = left.min(header.numbers);
            each(packed, usize::from(width), taken, min_delta)?;
            left -= taken;
        }
    }
    Some(())
}

/// The sum of the next `count` lengths. `length` is the length before them, and is set to the last of these lengths.
fn add_lengths(mut packed: &[u8], width: usize, count: u64, min_delta: i32, length: &mut i32) -> Option<u64> {
    let (mut block, mut left, mut sum) = ([0; BLOCK], count, 0_u64);
    while left > 0 {
        if width > 0 {
            packed = next_block(packed, width, &mut block)?;
        }
        let taken = left.min(BLOCK as u64);
        for delta in &block[..taken as usize] {
            *length = length.wrapping_add(min_delta).wrapping_add(*delta as i32);
            sum += u64::try_from(*length).ok()?;
        }
        left -= taken;
    }
    Some(sum)
}

pub struct Reader<'a> {
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Reader { data, at: 0 }
    }

    fn take(&mut self, size: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(size).ok()?)?;
        let found = self.data.get(self.at..end)?;
        self.at = end;
        Some(found)
    }

    /// A varint in its shortest form, of at most 64 bits.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let low = u64::from(byte & 0x7f);
            value |= low << shift;
            if byte < 0x80 {
                // No bit may be beyond 64, and the last byte may not be superfluous.
                return (low << shift >> shift == low && (shift == 0 || byte != 0)).then_some(value);
            }
        }
        None
    }

    fn count(&mut self) -> Option<u64> {
        self.varint().filter(|count| *count <= COUNTED_MAX)
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
        // A block of 128 in four miniblocks, three lengths: 5, 7 and 6. The least difference is -1.
        let data = [128, 1, 4, 3, 10, 1, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 99];
        assert_eq!(sum_lengths(&data, 3), Some((18, 18)));
        assert_eq!(sum_lengths(&data, 2), None);
        assert_eq!(sum_lengths(&data[..17], 3), None);
        // One length, and none at all: there is no block.
        assert_eq!(sum_lengths(&[128, 1, 4, 1, 10], 1), Some((5, 5)));
        assert_eq!(sum_lengths(&[128, 1, 4, 0, 0], 1), Some((0, 5)));
    }

    #[test]
    fn many_lengths_may_take_few_bytes() {
        // A block of 1,024 differences in one miniblock of zero bits. The least difference is 1, so the 1,000 lengths
        // are 0, 1, 2 and so on.
        let data = [128, 8, 1, 232, 7, 0, 2, 0];
        assert_eq!(sum_lengths(&data, 1_000), Some((499_500, 8)));
        assert_eq!(sum_lengths(&data, 999), None);
    }

    #[test]
    fn lengths_that_decoders_cannot_hold_are_none() {
        // 2^40 lengths; a negative length; numbers of 33 bits; a block size of zero; more miniblocks than bytes.
        for data in [
            &[128, 1, 4, 128, 128, 128, 128, 128, 32, 0][..],
            &[128, 1, 4, 1, 1],
            &[128, 1, 4, 2, 0, 0, 33, 0, 0, 0],
            &[0, 4, 2, 0, 0],
            &[128, 128, 128, 128, 16, 128, 128, 128, 128, 8, 2, 0, 0],
        ] {
            assert_eq!(sum_lengths(data, 1 << 41), None, "{data:?}");
        }
    }

    fn is_alike(data: &[u8], count: u64) -> bool {
        is_read_alike(data, Encoding::DELTA_BINARY_PACKED, Physical::INT64, count)
    }

    #[test]
    fn differences_are_read_alike() {
        let data = [128, 1, 4, 3, 10, 1, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0];
        assert!(is_alike(&data, 3) && !is_alike(&data, 2) && !is_alike(&data, 4) && !is_alike(&data[..17], 3));
        // Without values there is no block. Bytes behind the last value are ignored.
        assert!(is_alike(&[128, 1, 4, 0, 0], 0) && is_alike(&[128, 1, 4, 1, 10, 255], 1));
        // A block size of 128 + 2^39, which Java reads as 128; then numbers with one byte too many.
        assert!(!is_alike(&[128, 129, 128, 128, 128, 16, 1, 1, 0], 1));
        for at in [1, 3, 4, 5] {
            let mut longer = data.to_vec();
            longer[at] |= 128;
            longer.insert(at + 1, 0);
            assert!(!is_alike(&longer, 3), "{at}");
        }
        // The least 64-bit number has ten bytes; a further bit beyond them is refused.
        let least = [&[128, 1, 4, 1][..], &[255; 9], &[1]].concat();
        let beyond = [&[128, 1, 4, 1][..], &[255; 9], &[3]].concat();
        assert!(is_alike(&least, 1) && !is_alike(&beyond, 1));
    }

    #[test]
    fn both_lengths_of_a_text_are_read_alike() {
        let (one, longer) = ([128, 1, 4, 1, 0], [128, 1, 4, 1, 128, 0]);
        let texts = |data: &[&[u8]]| is_read_alike(&data.concat(), Encoding::DELTA_BYTE_ARRAY, Physical::BYTE_ARRAY, 1);
        assert!(texts(&[&one, &one]) && !texts(&[&one, &longer]) && !texts(&[&longer, &one]) && !texts(&[&one]));
    }
}
