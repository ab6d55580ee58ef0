//! Reads runs of equal or bit-packed numbers (Parquet's encoding RLE), as levels and dictionary indices are stored.

/// How many packed numbers are decoded at a time.
pub const BLOCK: usize = 64;
/// The bytes of a block of the widest numbers, plus eight, because `unpack_block` reads up to eight bytes past the
/// block. Blocks without eight bytes behind them are copied into a buffer of this size.
const ROOM: usize = BLOCK / 8 * 32 + 8;
/// Java counts numbers and bits in signed 32-bit integers, and overflows silently.
const COUNTED_MAX: u64 = i32::MAX as u64;

/// One run of numbers.
pub enum Run<'a> {
    /// One number, and how often it repeats.
    Same(u32, u64),
    /// Packed numbers, and how many of them to use.
    Packed(&'a [u8], u64),
}

/// Takes the next run off `data`, cut to `left` numbers. Returns `None` if the bytes end before the run does. Also
/// returns `None` for empty runs and for runs longer than Java counts, because readers disagree on them.
pub fn next_run<'a>(data: &mut &'a [u8], width: u32, left: u64) -> Option<Run<'a>> {
    let (header, used) = read_varint(data)?;
    let rest = &data[used..];
    // The length of a packed run is in groups of eight numbers.
    let length = Some(header >> 1).filter(|length| width <= 32 && (1..=COUNTED_MAX).contains(length))?;
    if header & 1 == 0 {
        let bytes = width.div_ceil(8) as usize;
        let mut value = [0; 4];
        value[..bytes].copy_from_slice(rest.get(..bytes)?);
        *data = &rest[bytes..];
        return Some(Run::Same(u32::from_le_bytes(value), length.min(left)));
    }
    if length * 8 * u64::from(width.max(1)) > COUNTED_MAX {
        return None;
    }
    if width == 0 {
        *data = rest;
        return Some(Run::Same(0, left.min(length * 8)));
    }
    let (packed, rest) = rest.split_at_checked(length as usize * width as usize)?;
    *data = rest;
    Some(Run::Packed(packed, left.min(length * 8)))
}

/// Gives `count` numbers to `each` in order. A call gets a block of numbers that occur once each, or one number with
/// how often it repeats. Returns `None` if the numbers cannot be read.
pub fn each_block(
    mut data: &[u8],
    width: u32,
    count: u64,
    mut each: impl FnMut(&[u32], u64) -> Option<()>,
) -> Option<()> {
    let mut left = count;
    while left > 0 {
        match next_run(&mut data, width, left)? {
            Run::Same(value, run) => {
                each(&[value], run)?;
                left -= run;
            }
            Run::Packed(packed, run) => {
                unpack(packed, width as usize, usize::try_from(run).ok()?, &mut each)?;
                left -= run;
            }
        }
    }
    Some(())
}

/// Whether the numbers that pad the last packed run, beyond `count`, are all less than `end`.
pub fn is_padded_below(mut data: &[u8], width: u32, count: u64, end: usize) -> bool {
    let mut left = count;
    while left > 0 {
        match next_run(&mut data, width, left) {
            Some(Run::Packed(packed, run)) if run == left => {
                // After the groups of eight that are used in full, `used` numbers are used, and all others are padding.
                let (full_bytes, used) = ((run / 8) as usize * width as usize, (run % 8) as usize);
                let rest = packed.get(full_bytes..).unwrap_or_default();
                let (held, mut at) = (rest.len() * 8 / width as usize, 0);
                let checked = unpack(rest, width as usize, held, &mut |numbers, _| {
                    let is_below =
                        numbers.iter().enumerate().all(|(more, number)| at + more < used || (*number as usize) < end);
                    at += numbers.len();
                    is_below.then_some(())
                });
                return checked.is_some();
            }
            Some(Run::Packed(_, run) | Run::Same(_, run)) => left -= run,
            None => return false,
        }
    }
    true
}

/// Unpacks `count` numbers of 1 to 32 bits, and gives them to `each` in blocks. `packed` has at least `count` numbers.
fn unpack(
    mut packed: &[u8],
    width: usize,
    count: usize,
    each: &mut impl FnMut(&[u32], u64) -> Option<()>,
) -> Option<()> {
    let (mut block, mut left) = ([0; BLOCK], count);
    while left > 0 {
        packed = next_block(packed, width, &mut block)?;
        let taken = left.min(BLOCK);
        each(&block[..taken], 1)?;
        left -= taken;
    }
    Some(())
}

/// Unpacks a block of numbers of 1 to 32 bits, and returns the bytes after it. Numbers beyond the end of the bytes are
/// zero.
#[inline(always)]
pub fn next_block<'a>(packed: &'a [u8], width: usize, block: &mut [u32; BLOCK]) -> Option<&'a [u8]> {
    let (unpack_at_width, size) = (UNPACKERS.get(width - 1)?, BLOCK / 8 * width);
    if packed.len() >= size + 8 {
        unpack_at_width(packed, block);
    } else {
        let (mut room, held) = ([0; ROOM], packed.len().min(size));
        room[..held].copy_from_slice(&packed[..held]);
        unpack_at_width(&room, block);
    }
    Some(packed.get(size..).unwrap_or(&[]))
}

macro_rules! unpackers {
    ($($width:literal)*) => { [$(unpack_block::<$width>),*] };
}

type Unpacker = fn(&[u8], &mut [u32; BLOCK]);
/// The unpacking functions by bit width less one. With a constant width every shift is a constant.
#[rustfmt::skip]
const UNPACKERS: [Unpacker; 32] =
    unpackers!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);

fn unpack_block<const WIDTH: usize>(packed: &[u8], block: &mut [u32; BLOCK]) {
    let mask = ((1_u64 << WIDTH) - 1) as u32;
    for (at, group) in block.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        // Eight bytes hold any number of 32 bits, at any bit offset in the first byte.
        let bytes = &packed[at * WIDTH..at * WIDTH + WIDTH + 8];
        for (at, number) in group.iter_mut().enumerate() {
            let bit = at * WIDTH;
            let window = bytes[bit >> 3..].first_chunk::<8>().map_or(0, |window| u64::from_le_bytes(*window));
            *number = (window >> (bit & 7)) as u32 & mask;
        }
    }
}

/// Reads a varint of at most 32 bits, and returns it with its number of bytes.
fn read_varint(data: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, byte) in data.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return (value <= u32::MAX.into()).then_some((value, at + 1));
        }
    }
    None
}

/// The number of bits for numbers up to `most`.
pub fn bit_width(most: u64) -> u32 {
    u64::BITS - most.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(data: &[u8], width: u32, count: u64) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        each_block(data, width, count, |numbers, times| {
            numbers.iter().for_each(|number| found.extend(std::iter::repeat_n(*number, times as usize)));
            Some(())
        })?;
        Some(found)
    }

    /// Reads the same numbers as the specification says: bit by bit, the lowest bit of each number first.
    fn read_bit_by_bit(mut data: &[u8], width: usize, count: usize) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        while found.len() < count {
            let (head, used) = read_varint(data)?;
            data = &data[used..];
            let sized = (head >> 1) * 8 * width.max(1) as u64;
            if head >> 1 == 0 || head & 1 == 1 && sized > i32::MAX as u64 {
                return None;
            }
            let (times, bits) = if head & 1 == 0 {
                (head as usize >> 1, width.div_ceil(8) * 8)
            } else {
                (1, (head as usize >> 1) * 8 * width)
            };
            let held = if head & 1 == 0 { 1 } else { (head as usize >> 1) * 8 };
            data.get(..bits / 8)?;
            for at in 0..held {
                if found.len() >= count {
                    return Some(found);
                }
                let mut number = 0;
                let wide = if head & 1 == 0 { bits } else { width };
                for bit in (0..wide).filter(|bit| data[(at * width + bit) / 8] >> ((at * width + bit) % 8) & 1 == 1) {
                    number |= 1 << bit;
                }
                found.extend(std::iter::repeat_n(number, times.min(count - found.len())));
            }
            data = data.get(bits / 8..)?;
        }
        Some(found)
    }

    /// Pseudo-random bytes, the same in every run.
    fn noise(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        }
    }

    #[test]
    fn numbers_of_every_width_are_those_that_single_bits_give() {
        for width in 0..=32_usize {
            let mut next = noise(width as u64 + 1);
            let (mut data, mut most) = (Vec::new(), 0);
            for _ in 0..6 {
                let groups = next() % 12 + 1;
                if next().is_multiple_of(3) {
                    most += groups as usize;
                    data.push((groups << 1) as u8);
                    data.extend(&(next() as u32 >> (32 - width.max(1))).to_le_bytes()[..width.div_ceil(8)]);
                } else {
                    most += 8 * groups as usize;
                    data.push((groups << 1) as u8 | 1);
                    data.extend((0..groups as usize * width).map(|_| next() as u8));
                }
            }
            for count in [0, 1, 7, 8, 9, 63, 64, 65, most - 1, most].map(|count| count.min(most)) {
                let expected = read_bit_by_bit(&data, width, count);
                assert!(expected.is_some());
                assert_eq!(read_all(&data, width as u32, count as u64), expected, "{width} bits, {count} numbers");
            }
            for size in (0..data.len()).step_by(5) {
                let cut = &data[..size];
                assert_eq!(
                    read_all(cut, width as u32, most as u64),
                    read_bit_by_bit(cut, width, most),
                    "{width} bits, {size} bytes"
                );
            }
        }
    }

    #[test]
    fn arbitrary_bytes_give_numbers_or_none() {
        for seed in 0..5_000 {
            let mut next = noise(seed + 99);
            let width = next() as usize % 33;
            let data: Vec<u8> = (0..next() % 80).map(|_| next() as u8).collect();
            let count = next() as usize % 400;
            assert_eq!(
                read_all(&data, width as u32, count as u64),
                read_bit_by_bit(&data, width, count),
                "{data:?} {width} {count}"
            );
        }
        assert_eq!(read_all(&[2, 0, 0, 0, 0, 0], 33, 1), None);
    }

    #[test]
    fn runs_and_packed_numbers_are_read() {
        assert_eq!(read_all(&[10, 3], 2, 5).unwrap(), [3; 5]);
        // One group of eight numbers of three bits: 0 to 7.
        assert_eq!(read_all(&[3, 0x88, 0xc6, 0xfa], 3, 8).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(read_all(&[3, 0x88, 0xc6, 0xfa, 4, 1], 3, 9).unwrap()[8], 1);
        assert_eq!(read_all(&[], 3, 0).unwrap(), [0; 0]);
    }

    #[test]
    fn the_padding_of_the_last_packed_run_is_checked() {
        // Packed runs of eight numbers of two bits: `three` is 1 2 0 3 3 3 3 3, and `none` is 1 2 0 0 0 0 0 0.
        let (three, none) = ([3, 0b1100_1001, 0xff], [3, 0b1001, 0]);
        assert!(
            !is_padded_below(&three, 2, 3, 3) && is_padded_below(&three, 2, 3, 4) && is_padded_below(&none, 2, 3, 3)
        );
        assert!(
            is_padded_below(&[three, none].concat(), 2, 11, 3) && !is_padded_below(&[none, three].concat(), 2, 11, 3)
        );
        assert!(
            is_padded_below(&three, 2, 8, 3) && is_padded_below(&[200, 1, 3], 2, 5, 3) && is_padded_below(&[], 2, 0, 3)
        );
        // Two groups of eight numbers. Only the first group has numbers that are used.
        assert!(
            !is_padded_below(&[5, 0b1001, 0, 0, 0b1100_0000], 2, 3, 3)
                && is_padded_below(&[5, 0b1001, 0, 0, 0], 2, 3, 3)
        );
    }

    #[test]
    fn wide_numbers_are_read_across_bytes() {
        let numbers: Vec<u32> = (0..64).map(|at| at * 1_000_003 % (1 << 23)).collect();
        let mut packed = vec![0_u8; 23 * 8];
        for (at, number) in numbers.iter().enumerate() {
            (0..23).filter(|bit| number >> bit & 1 == 1).for_each(|bit| {
                let place = at * 23 + bit;
                packed[place / 8] |= 1 << (place % 8);
            });
        }
        let data = [&[17][..], &packed].concat();
        assert_eq!(read_all(&data, 23, 64).unwrap(), numbers);
    }

    #[test]
    fn bytes_that_end_too_early_are_none() {
        for (data, width) in [(&[][..], 1), (&[10], 2), (&[3], 3), (&[0x80, 0x80], 1), (&[255; 20], 1), (&[1], 3)] {
            assert_eq!(read_all(data, width, 9), None, "{data:?}");
        }
    }

    #[test]
    fn runs_of_nothing_and_runs_that_java_cannot_count_are_none() {
        // Two numbers, an empty run, and two numbers again.
        assert_eq!(read_all(&[4, 1, 0, 0, 4, 1], 1, 4), None);
        assert_eq!(read_all(&[4, 1, 1, 4, 1], 1, 4), None);
        // 2^32 + 4, which is two numbers in 32-bit arithmetic.
        assert_eq!(read_all(&[0x84, 0x80, 0x80, 0x80, 0x10, 1], 1, 2), None);
        // 2^29 + 1 groups, which is one group in 32-bit arithmetic.
        assert_eq!(read_all(&[0x83, 0x80, 0x80, 0x80, 0x04, 255, 4, 0], 1, 9), None);
    }

    #[test]
    fn the_bits_of_a_level() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8].map(bit_width), [0, 1, 2, 2, 3, 3, 4]);
    }
}
