//! Widens IEEE-754 values exactly, and writes every NaN of a format as the same bits.

use crate::canonical::text::push_cell;
use arrow_buffer::ScalarBuffer;

/// IEEE-754 bits. A variant's name has the width in which they are stored, and then the width in which they are
/// written.
pub enum Floats {
    F16To32(ScalarBuffer<u16>),
    F16To64(ScalarBuffer<u16>),
    F32(ScalarBuffer<u32>),
    F32To64(ScalarBuffer<u32>),
    F64(ScalarBuffer<u64>),
}

impl Floats {
    pub fn push(&self, index: usize, tag: u8, out: &mut Vec<u8>) {
        match self {
            Floats::F16To32(bits) => push_single(out, tag, widen(bits[index].into(), HALF, SINGLE) as u32),
            Floats::F16To64(bits) => push_double(out, tag, widen(bits[index].into(), HALF, DOUBLE)),
            Floats::F32(bits) => push_single(out, tag, bits[index]),
            Floats::F32To64(bits) => push_double(out, tag, widen(bits[index].into(), SINGLE, DOUBLE)),
            Floats::F64(bits) => push_double(out, tag, bits[index]),
        }
    }
}

fn push_single(out: &mut Vec<u8>, tag: u8, bits: u32) {
    push_cell(out, tag, &canonicalize_single(bits).to_be_bytes());
}

fn push_double(out: &mut Vec<u8>, tag: u8, bits: u64) {
    push_cell(out, tag, &canonicalize_double(bits).to_be_bytes());
}

/// Replaces every NaN by the one NaN of binary32 (spec/canonical.md section 5.3); other bits stay as they are.
#[inline(always)]
pub fn canonicalize_single(bits: u32) -> u32 {
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fc0_0000 } else { bits }
}

/// Replaces every NaN by the one NaN of binary64; other bits stay as they are.
#[inline(always)]
pub fn canonicalize_double(bits: u64) -> u64 {
    if bits & 0x7fff_ffff_ffff_ffff > 0x7ff0_0000_0000_0000 { 0x7ff8_0000_0000_0000 } else { bits }
}

/// Exponent and fraction bits of a binary format.
type Format = (u32, u32);
const HALF: Format = (5, 10);
const SINGLE: Format = (8, 23);
const DOUBLE: Format = (11, 52);

/// Moves sign, exponent and fraction to a wider format. A NaN stays a NaN, which `canonicalize_*` then replaces.
fn widen(bits: u64, (from_exponent, from_fraction): Format, (to_exponent, to_fraction): Format) -> u64 {
    let sign = bits >> (from_exponent + from_fraction) << (to_exponent + to_fraction);
    let exponent = bits >> from_fraction & ((1 << from_exponent) - 1);
    let fraction = bits & ((1 << from_fraction) - 1);
    let rebias = (1u64 << (to_exponent - 1)) - (1u64 << (from_exponent - 1));
    let shift = to_fraction - from_fraction;
    if exponent == (1 << from_exponent) - 1 {
        return sign | ((1 << to_exponent) - 1) << to_fraction | fraction << shift;
    }
    if exponent != 0 {
        return sign | (exponent + rebias) << to_fraction | fraction << shift;
    }
    if fraction == 0 {
        return sign;
    }
    // A subnormal becomes normal: its leading one moves to the implicit bit.
    let lead = from_fraction + 1 - (64 - fraction.leading_zeros());
    let normal = fraction << lead & ((1 << from_fraction) - 1);
    sign | (rebias + 1 - u64::from(lead)) << to_fraction | normal << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_to_its_value() {
        for bits in 0..=u16::MAX {
            let (sign, exponent, fraction) = (bits >> 15, bits >> 10 & 0x1f, bits & 0x3ff);
            let single = f32::from_bits(widen(bits.into(), HALF, SINGLE) as u32);
            if exponent == 0x1f {
                assert_eq!(single.to_bits(), u32::from(sign) << 31 | 0xff << 23 | u32::from(fraction) << 13);
                continue;
            }
            let magnitude = match exponent {
                0 => f32::from(fraction) * 2f32.powi(-24),
                _ => (1024.0 + f32::from(fraction)) * 2f32.powi(i32::from(exponent) - 25),
            };
            let expected = if sign == 1 { -magnitude } else { magnitude };
            assert_eq!(single.to_bits(), expected.to_bits(), "{bits:#06x}");
        }
    }

    #[test]
    fn singles_widen_as_the_processor_does_but_for_signaling_nans() {
        let mut bits = 0u32;
        loop {
            let single = f32::from_bits(bits);
            if !single.is_nan() {
                assert_eq!(widen(bits.into(), SINGLE, DOUBLE), f64::from(single).to_bits(), "{bits:#010x}");
            }
            match bits.checked_add(65_521) {
                Some(next) => bits = next,
                None => break,
            }
        }
        assert_eq!(widen(0x7f80_0001, SINGLE, DOUBLE), 0x7ff0_0000_2000_0000);
    }

    #[test]
    fn every_nan_is_written_as_the_same_bits() {
        for bits in [0x7f80_0001, 0x7fa0_0000, 0x7fbf_ffff, 0x7fc0_0000, 0x7fff_ffff, 0xff80_0001, 0xffff_ffff] {
            assert_eq!(canonicalize_single(bits), 0x7fc0_0000, "{bits:#010x}");
            assert_eq!(canonicalize_double(widen(bits.into(), SINGLE, DOUBLE)), 0x7ff8_0000_0000_0000, "{bits:#010x}");
        }
        for bits in [0x7ff0_0000_0000_0001, 0x7fff_ffff_ffff_ffff, 0xfff0_0000_0000_0001, u64::MAX] {
            assert_eq!(canonicalize_double(bits), 0x7ff8_0000_0000_0000, "{bits:#018x}");
        }
    }

    #[test]
    fn zeros_infinities_and_numbers_keep_their_bits() {
        for bits in [0, 1, 0x8000_0000, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000] {
            assert_eq!(canonicalize_single(bits), bits);
            let wide = widen(bits.into(), SINGLE, DOUBLE);
            assert_eq!(canonicalize_double(wide), wide);
        }
    }
}
