//! A fast keyed 128-bit hash of rows and cells, to find wrong rows after a FAIL.
//!
//! It is not a digest and proves nothing. The verdict depends on the digests alone, and the numbers of wrong rows that
//! this hash finds are compared with the digests' row counts. The producer does not know the key: it is drawn after the
//! freeze, used once, and never leaves the process.

use zeroize::Zeroize;

/// The keys of the hash. The hash has two independent lanes of 64 bits. In each step a lane mixes its state and two
/// 64-bit words into two factors; their folded product is the next state.
#[derive(Clone)]
pub struct RowHash {
    lanes: [Lane; 2],
}

#[derive(Clone)]
struct Lane {
    start: u64,
    left: u64,
    right: u64,
}

impl RowHash {
    /// Derives the hash for one purpose. Under one key, each purpose has a different hash.
    pub fn new(key: &[u8; 32], purpose: &str) -> Self {
        let lane = |number: u8| {
            let mut hasher = blake3::Hasher::new_keyed(key);
            hasher.update(purpose.as_bytes()).update(&[number]);
            let mut material = *hasher.finalize().as_bytes();
            let lane =
                Lane { start: word(&material[..8]), left: word(&material[8..16]), right: word(&material[16..24]) };
            material.zeroize();
            lane
        };
        RowHash { lanes: [lane(0), lane(1)] }
    }

    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u128 {
        let length = bytes.len() as u64;
        let mut states = [self.lanes[0].start ^ length, self.lanes[1].start ^ length];
        let mut chunks = bytes.chunks_exact(16);
        for chunk in &mut chunks {
            self.step(&mut states, word(&chunk[..8]), word(&chunk[8..]));
        }
        // Zeros fill the last chunk. Zeros at the end of a message still change the hash, because the state starts with
        // the length.
        let mut last = [0; 16];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.step(&mut states, word(&last[..8]), word(&last[8..]));
        self.step(&mut states, length, !length);
        u128::from(states[0]) << 64 | u128::from(states[1])
    }

    #[inline(always)]
    fn step(&self, states: &mut [u64; 2], left: u64, right: u64) {
        for (state, lane) in states.iter_mut().zip(&self.lanes) {
            *state = fold(left ^ lane.left ^ *state, right ^ lane.right ^ state.rotate_left(32));
        }
    }
}

impl PartialEq for RowHash {
    /// Whether both have the same key and purpose.
    fn eq(&self, other: &Self) -> bool {
        self.hash(&[]) == other.hash(&[])
    }
}

/// Multiplies two numbers, and combines the high and the low half of the product by XOR.
#[inline(always)]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

/// The first eight bytes as a number.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn inputs_that_differ_in_a_bit_or_in_zeros_at_the_end_have_other_hashes() {
        let hash = RowHash::new(&[3; 32], "test");
        let mut seen = HashSet::new();
        for length in 0..70 {
            assert!(seen.insert(hash.hash(&vec![0; length])));
            for bit in 0..8 * length {
                let mut bytes = vec![0; length];
                bytes[bit / 8] = 1 << (bit % 8);
                assert!(seen.insert(hash.hash(&bytes)));
            }
        }
    }

    #[test]
    fn low_bits_of_counting_keys_spread_over_buckets() {
        let hash = RowHash::new(&[3; 32], "test");
        let mut buckets = vec![0u32; 1 << 10];
        for number in 0..1u64 << 16 {
            buckets[hash.hash(&number.to_be_bytes()) as usize & 1023] += 1;
        }
        assert!(buckets.iter().all(|count| (20..130).contains(count)));
    }

    #[test]
    fn another_key_and_another_purpose_give_another_hash() {
        let hash = RowHash::new(&[3; 32], "test");
        assert!(hash != RowHash::new(&[4; 32], "test"));
        assert!(hash != RowHash::new(&[3; 32], "rest"));
        assert!(hash == RowHash::new(&[3; 32], "test"));
    }
}
