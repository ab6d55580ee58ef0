//! Element hashes and the multiset sum (spec/digest.md section 3).

use crate::hash::sha256::{self, HashPath, HmacKey, Messages, Scratch};
use zeroize::Zeroize;

/// How an element hash, the keyed hash of one canonical row, is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Construction {
    HmacSha256,
    Blake3,
}

/// A sum of 256-bit numbers modulo 2^256, most significant byte first.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum([u8; 32]);

impl Sum {
    pub fn add(&mut self, hash: &[u8; 32]) {
        let mut carry = 0u128;
        for (ours, theirs) in self.0.rchunks_exact_mut(8).zip(hash.rchunks_exact(8)) {
            let total = u128::from(to_word(ours)) + u128::from(to_word(theirs)) + carry;
            ours.copy_from_slice(&(total as u64).to_be_bytes());
            carry = total >> 64;
        }
    }

    pub fn bytes(&self) -> [u8; 32] {
        self.0
    }
}

fn to_word(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Computes element hashes under one key and adds them to a sum.
pub enum Hasher {
    HmacSha256 { key: HmacKey, path: HashPath, scratch: Scratch },
    Blake3 { key: [u8; 32] },
}

impl Hasher {
    pub fn new(construction: Construction, key: &[u8; 32], path: HashPath) -> Self {
        match construction {
            Construction::HmacSha256 => {
                Hasher::HmacSha256 { key: HmacKey::new(key), path, scratch: Scratch::default() }
            }
            Construction::Blake3 => Hasher::Blake3 { key: *key },
        }
    }

    /// Adds the element hash of every message to `sum`. `lengths` are the messages' lengths in bytes, without padding.
    pub fn add_to(&mut self, sum: &mut Sum, messages: Messages<'_>, lengths: &[u32]) {
        match self {
            Hasher::HmacSha256 { key, path, scratch } => {
                sum.add(&sha256::sum_hmac(*path, key, messages, scratch).fold());
            }
            Hasher::Blake3 { key } => {
                for (start, length) in messages.starts.iter().zip(lengths) {
                    let at = *start as usize;
                    sum.add(blake3::keyed_hash(key, &messages.bytes[at..at + *length as usize]).as_bytes());
                }
            }
        }
    }
}

impl Drop for Hasher {
    fn drop(&mut self) {
        if let Hasher::Blake3 { key } = self {
            key.zeroize();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_wrap_at_two_to_the_256() {
        let mut sum = Sum([0xff; 32]);
        let mut two = [0; 32];
        two[31] = 2;
        sum.add(&two);
        let mut one = [0; 32];
        one[31] = 1;
        assert_eq!(sum.bytes(), one);
    }

    #[test]
    fn a_carry_crosses_words() {
        let mut sum = Sum::default();
        let mut low = [0; 32];
        low[24..].fill(0xff);
        sum.add(&low);
        let mut one = [0; 32];
        one[31] = 1;
        sum.add(&one);
        let mut expected = [0; 32];
        expected[23] = 1;
        assert_eq!(sum.bytes(), expected);
    }
}
