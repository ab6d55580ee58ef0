//! Runs of equal or bit-packed numbers, as Parquet has levels and dictionary indices.

/// Shows each number with how often it comes in a row, until `count` of them were seen; `None` where the bytes end before.
pub fn each_run(mut data: &[u8], width: u32, count: u64, mut each: impl FnMut(u32, u64) -> Option<()>) -> Option<()> {
    if width > 32 {
        return None;
    }
    let mut left = count;
    while left > 0 {
        let (head, used) = varint(data)?;
        data = &data[used..];
        if head & 1 == 0 {
            let bytes = width.div_ceil(8) as usize;
            let mut value = [0; 4];
            value[..bytes].copy_from_slice(data.get(..bytes)?);
            data = &data[bytes..];
            let run = (head >> 1).min(left);
            // A run of nothing is no progress: bytes without end would be none either, since they end.
            each(u32::from_le_bytes(value), run)?;
            left -= run;
        } else {
            let groups = usize::try_from(head >> 1).ok()?;
            let size = groups.checked_mul(width as usize)?.min(data.len());
            let (packed, rest) = data.split_at(size);
            let held = if width == 0 { head >> 1 } else { size as u64 / u64::from(width) };
            let run = left.min(held.saturating_mul(8));
            if run == 0 && head >> 1 > 0 {
                return None;
            }
            unpack(packed, width, run, &mut each)?;
            (data, left) = (rest, left - run);
        }
    }
    Some(())
}

fn unpack(packed: &[u8], width: u32, count: u64, each: &mut impl FnMut(u32, u64) -> Option<()>) -> Option<()> {
    let mask = (1_u64 << width) - 1;
    let count = usize::try_from(count).ok()?;
    let width = width as usize;
    // Eight bytes hold any number of 32 bits, wherever it begins in its first byte.
    let whole = if packed.len() >= 8 { (((packed.len() - 8) * 8) / width.max(1)).min(count) } else { 0 };
    for at in 0..whole {
        let bit = at * width;
        let window = u64::from_le_bytes(*packed.get(bit >> 3..)?.first_chunk::<8>()?);
        each(((window >> (bit & 7)) & mask) as u32, 1)?;
    }
    for at in whole..count {
        let bit = at * width;
        let mut bytes = [0; 8];
        let rest = packed.get(bit >> 3..)?;
        let held = rest.len().min(8);
        bytes[..held].copy_from_slice(&rest[..held]);
        each(((u64::from_le_bytes(bytes) >> (bit & 7)) & mask) as u32, 1)?;
    }
    Some(())
}

fn varint(data: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, byte) in data.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return Some((value, at + 1));
        }
    }
    None
}

/// How many bits the numbers up to `most` need.
pub fn bits(most: u64) -> u32 {
    u64::BITS - most.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(data: &[u8], width: u32, count: u64) -> Option<Vec<u32>> {
        let mut found = Vec::new();
        each_run(data, width, count, |value, times| {
            found.extend(std::iter::repeat_n(value, times as usize));
            Some(())
        })?;
        Some(found)
    }

    #[test]
    fn runs_and_packed_numbers_are_read() {
        assert_eq!(all(&[10, 3], 2, 5).unwrap(), [3; 5]);
        // One group of eight numbers of three bits: 0 to 7.
        assert_eq!(all(&[3, 0x88, 0xc6, 0xfa], 3, 8).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(all(&[3, 0x88, 0xc6, 0xfa, 4, 1], 3, 9).unwrap()[8], 1);
        assert_eq!(all(&[], 3, 0).unwrap(), [0; 0]);
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
        assert_eq!(all(&data, 23, 64).unwrap(), numbers);
    }

    #[test]
    fn bytes_that_end_too_early_are_none() {
        for (data, width) in [(&[][..], 1), (&[10], 2), (&[3], 3), (&[0x80, 0x80], 1), (&[255; 20], 1), (&[1], 3)] {
            assert_eq!(all(data, width, 9), None, "{data:?}");
        }
    }

    #[test]
    fn the_bits_of_a_level() {
        assert_eq!([0, 1, 2, 3, 4, 7, 8].map(bits), [0, 1, 2, 2, 3, 3, 4]);
    }
}
