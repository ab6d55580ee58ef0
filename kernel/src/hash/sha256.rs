//! The sum of the HMAC-SHA256 of many padded messages. There are two implementations: a portable path (the `sha2`
//! crate), and an AVX-512 path that hashes 16 messages with the same number of blocks at once. The path is chosen at
//! run time.

use sha2::Digest;
use zeroize::Zeroize;

/// The bytes of a SHA-256 block.
const BLOCK: usize = 64;
/// The length of HMAC's outer message in bits: one key block and the inner hash.
const OUTER_BITS: u32 = 8 * (64 + 32);

/// The implementation that hashes. Every path gives the same sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashPath {
    Portable,
    Avx512,
}

impl HashPath {
    /// The paths this processor has, fastest first.
    pub fn available() -> Vec<HashPath> {
        let mut paths = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            paths.push(HashPath::Avx512);
        }
        paths.push(HashPath::Portable);
        paths
    }

    pub fn name(self) -> &'static str {
        match self {
            HashPath::Portable => "portable",
            HashPath::Avx512 => "avx512",
        }
    }
}

/// An HMAC key, as the SHA-256 states after its inner and its outer key block.
pub struct HmacKey {
    inner: [u32; 8],
    outer: [u32; 8],
}

impl HmacKey {
    pub fn new(key: &[u8; 32]) -> Self {
        let mut block = [0u8; BLOCK];
        block[..32].copy_from_slice(key);
        let compress_key = |pad: u8| {
            let mut padded = block.map(|byte| byte ^ pad);
            let mut state = INITIAL;
            sha2::block_api::compress256(&mut state, &[padded]);
            padded.zeroize();
            state
        };
        let states = HmacKey { inner: compress_key(0x36), outer: compress_key(0x5c) };
        block.zeroize();
        states
    }
}

impl Drop for HmacKey {
    fn drop(&mut self) {
        self.inner.zeroize();
        self.outer.zeroize();
    }
}

/// Messages that are already padded. Message i begins at `bytes[starts[i]]` and has `blocks[i]` blocks of 64 bytes.
#[derive(Clone, Copy)]
pub struct Messages<'a> {
    pub bytes: &'a [u8],
    pub starts: &'a [u32],
    pub blocks: &'a [u32],
}

impl Messages<'_> {
    fn block(&self, start: u32, index: usize) -> &[u8; BLOCK] {
        let at = start as usize + index * BLOCK;
        self.bytes[at..at + BLOCK].first_chunk().expect("a block has 64 bytes")
    }
}

/// Pads the message in the first `length` bytes of `slot` for HMAC's inner hash, and returns its number of blocks.
/// `slot` has at least `length` + 72 bytes.
#[inline(always)]
pub fn pad(slot: &mut [u8], length: usize) -> u32 {
    let blocks = (length + 9).div_ceil(BLOCK);
    let end = blocks * BLOCK;
    // The padding is 9 to 72 bytes. Always filling 72 compiles to plain stores instead of a call.
    slot[length..length + 72].fill(0);
    slot[length] = 0x80;
    // The inner hash starts with a key block, so the length in bits includes this block.
    slot[end - 8..end].copy_from_slice(&(8 * (BLOCK + length) as u64).to_be_bytes());
    blocks as u32
}

/// The sum of 256-bit hashes, kept as eight sums of 32-bit words. `fold` carries between the words.
#[derive(Clone, Copy, Default)]
pub struct WordSum([u64; 8]);

impl WordSum {
    fn add(&mut self, hash: &[u32; 8]) {
        for (sum, word) in self.0.iter_mut().zip(hash) {
            *sum += u64::from(*word);
        }
    }

    /// The sum modulo 2^256, most significant byte first. At most 2^32 hashes may have been added.
    pub fn fold(&self) -> [u8; 32] {
        let mut folded = [0u8; 32];
        let mut carry = 0u64;
        for (word, bytes) in self.0.iter().zip(folded.chunks_exact_mut(4)).rev() {
            let total = word + carry;
            bytes.copy_from_slice(&(total as u32).to_be_bytes());
            carry = total >> 32;
        }
        folded
    }
}

/// Buffers of the AVX-512 path, reused between calls.
#[derive(Default)]
pub struct Scratch {
    /// Index: a number of blocks. Value: the starts of the messages with this number of blocks that are not hashed yet.
    by_blocks: Vec<Vec<u32>>,
    /// The starts of the messages that the portable path hashes.
    single_starts: Vec<u32>,
    /// The numbers of blocks of these messages.
    single_blocks: Vec<u32>,
}

/// The sum of HMAC-SHA256(key, message) over all messages.
pub fn sum_hmac(path: HashPath, key: &HmacKey, messages: Messages<'_>, scratch: &mut Scratch) -> WordSum {
    match path {
        #[cfg(target_arch = "x86_64")]
        HashPath::Avx512 => avx512::sum(key, messages, scratch),
        _ => portable_sum(key, messages),
    }
}

fn portable_sum(key: &HmacKey, messages: Messages<'_>) -> WordSum {
    let mut sum = WordSum::default();
    let mut outer_block = [0u8; BLOCK];
    outer_block[32] = 0x80;
    outer_block[60..].copy_from_slice(&OUTER_BITS.to_be_bytes());
    for (start, blocks) in messages.starts.iter().zip(messages.blocks) {
        let at = *start as usize;
        let (message, _) = messages.bytes[at..at + *blocks as usize * BLOCK].as_chunks::<BLOCK>();
        let mut state = key.inner;
        sha2::block_api::compress256(&mut state, message);
        for (bytes, word) in outer_block.chunks_exact_mut(4).zip(state) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        let mut hash = key.outer;
        sha2::block_api::compress256(&mut hash, &[outer_block]);
        sum.add(&hash);
    }
    sum
}

/// SHA-256 of a whole byte string, without a key.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    sha2::Sha256::digest(bytes).into()
}

/// SHA-256's initial state.
const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

#[cfg(target_arch = "x86_64")]
mod avx512 {
    //! Hashes sixteen messages with the same number of blocks at once, each in one 32-bit lane.

    use super::{BLOCK, HashPath, HmacKey, Messages, OUTER_BITS, Scratch, WordSum, portable_sum};
    use std::arch::x86_64::*;

    const LANES: usize = 16;

    /// SHA-256's round constants.
    #[rustfmt::skip]
    const ROUND: [u32; 64] = [
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    ];

    #[allow(unsafe_code)]
    pub fn sum(key: &HmacKey, messages: Messages<'_>, scratch: &mut Scratch) -> WordSum {
        assert!(HashPath::available().contains(&HashPath::Avx512), "this processor has no AVX-512");
        // SAFETY: the assertion above has checked the features that `sum_lanes` is compiled with. It has no other
        // precondition.
        unsafe { sum_lanes(key, messages, scratch) }
    }

    /// Groups the messages by number of blocks. Full groups are hashed in lanes. The messages that remain in a group
    /// are hashed in lanes too, or one by one if they are few.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn sum_lanes(key: &HmacKey, messages: Messages<'_>, scratch: &mut Scratch) -> WordSum {
        let mut sum = WordSum::default();
        let Scratch { by_blocks, single_starts, single_blocks } = scratch;
        for (start, blocks) in messages.starts.iter().zip(messages.blocks) {
            let count = *blocks as usize;
            if count >= LONG_MESSAGE_BLOCKS {
                single_starts.push(*start);
                single_blocks.push(*blocks);
                continue;
            }
            if by_blocks.len() <= count {
                by_blocks.resize_with(count + 1, Vec::new);
            }
            let group = &mut by_blocks[count];
            group.push(*start);
            if let Ok(starts) = <[u32; LANES]>::try_from(&group[..]) {
                hash_group(key, messages, starts, count, LANES, &mut sum);
                group.clear();
            }
        }
        for (count, group) in by_blocks.iter_mut().enumerate().filter(|(_, group)| !group.is_empty()) {
            if group.len() < SMALL_GROUP {
                single_starts.extend_from_slice(group);
                single_blocks.resize(single_starts.len(), count as u32);
            } else {
                let mut starts = [group[0]; LANES];
                starts[..group.len()].copy_from_slice(group);
                hash_group(key, messages, starts, count, group.len(), &mut sum);
            }
            group.clear();
        }
        let rest = portable_sum(key, Messages { bytes: messages.bytes, starts: single_starts, blocks: single_blocks });
        single_starts.clear();
        single_blocks.clear();
        for (total, word) in sum.0.iter_mut().zip(rest.0) {
            *total += word;
        }
        sum
    }

    /// Messages of this many blocks (1 MiB) or more are hashed one by one, because such messages rarely
    /// have equal numbers of blocks.
    const LONG_MESSAGE_BLOCKS: usize = 16_384;
    /// Groups of fewer messages than this are hashed one by one. Sixteen lanes cost as much as about five messages that
    /// are hashed one by one.
    const SMALL_GROUP: usize = 5;

    /// Hashes sixteen messages of `blocks` blocks each, and adds the hashes of the first `lanes` of them to `sum`.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn hash_group(
        key: &HmacKey,
        messages: Messages<'_>,
        starts: [u32; LANES],
        blocks: usize,
        lanes: usize,
        sum: &mut WordSum,
    ) {
        let mut state = key.inner.map(|word| _mm512_set1_epi32(word as i32));
        for index in 0..blocks {
            let rows = starts.map(|start| swap_bytes(load(messages.block(start, index))));
            compress(&mut state, transpose(rows));
        }
        let mut schedule = [_mm512_setzero_si512(); 16];
        schedule[..8].copy_from_slice(&state);
        schedule[8] = _mm512_set1_epi32(i32::MIN);
        schedule[15] = _mm512_set1_epi32(OUTER_BITS as i32);
        let mut hash = key.outer.map(|word| _mm512_set1_epi32(word as i32));
        compress(&mut hash, schedule);
        let counted_lanes = ((1u32 << lanes) - 1) as __mmask16;
        for (word, total) in hash.into_iter().zip(&mut sum.0) {
            let word = _mm512_maskz_mov_epi32(counted_lanes, word);
            // The 16 words are split into two vectors of 64-bit numbers, because their sum needs more than 32 bits.
            let low = _mm512_and_si512(word, _mm512_set1_epi64(0xffff_ffff));
            let high = _mm512_srli_epi64::<32>(word);
            *total += _mm512_reduce_add_epi64(_mm512_add_epi64(low, high)) as u64;
        }
    }

    #[allow(unsafe_code)]
    #[target_feature(enable = "avx512f")]
    fn load(block: &[u8; BLOCK]) -> __m512i {
        // SAFETY: this reads 64 bytes behind a reference to 64 bytes, and the instruction needs no alignment.
        unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
    }

    /// Swaps the bytes of every 32-bit word, because SHA-256 reads words big-endian.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn swap_bytes(words: __m512i) -> __m512i {
        let order = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
        _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
    }

    /// Transposes a 16 x 16 matrix of words: from one vector for each message to one vector for each word of the block.
    #[target_feature(enable = "avx512f")]
    fn transpose(mut rows: [__m512i; 16]) -> [__m512i; 16] {
        let mut step = [_mm512_setzero_si512(); 16];
        for i in 0..8 {
            step[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
            step[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
        }
        for i in 0..4 {
            rows[4 * i] = _mm512_unpacklo_epi64(step[4 * i], step[4 * i + 2]);
            rows[4 * i + 1] = _mm512_unpackhi_epi64(step[4 * i], step[4 * i + 2]);
            rows[4 * i + 2] = _mm512_unpacklo_epi64(step[4 * i + 1], step[4 * i + 3]);
            rows[4 * i + 3] = _mm512_unpackhi_epi64(step[4 * i + 1], step[4 * i + 3]);
        }
        for i in 0..4 {
            step[i] = _mm512_shuffle_i32x4::<0x88>(rows[i], rows[i + 4]);
            step[i + 4] = _mm512_shuffle_i32x4::<0xdd>(rows[i], rows[i + 4]);
            step[i + 8] = _mm512_shuffle_i32x4::<0x88>(rows[i + 8], rows[i + 12]);
            step[i + 12] = _mm512_shuffle_i32x4::<0xdd>(rows[i + 8], rows[i + 12]);
        }
        for i in 0..8 {
            rows[i] = _mm512_shuffle_i32x4::<0x88>(step[i], step[i + 8]);
            rows[i + 8] = _mm512_shuffle_i32x4::<0xdd>(step[i], step[i + 8]);
        }
        rows
    }

    #[target_feature(enable = "avx512f")]
    fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        _mm512_ternarylogic_epi32::<0x96>(a, b, c)
    }

    /// One compression (FIPS 180-4, section 6.2.2) in every lane.
    #[target_feature(enable = "avx512f")]
    fn compress(state: &mut [__m512i; 8], mut w: [__m512i; 16]) {
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
        macro_rules! round {
            ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $k:expr, $w:expr) => {
                let big1 = xor3(_mm512_ror_epi32::<6>($e), _mm512_ror_epi32::<11>($e), _mm512_ror_epi32::<25>($e));
                let choice = _mm512_ternarylogic_epi32::<0xca>($e, $f, $g);
                let keyed = _mm512_add_epi32($w, _mm512_set1_epi32(ROUND[$k] as i32));
                let t1 = _mm512_add_epi32(_mm512_add_epi32($h, keyed), _mm512_add_epi32(big1, choice));
                let big0 = xor3(_mm512_ror_epi32::<2>($a), _mm512_ror_epi32::<13>($a), _mm512_ror_epi32::<22>($a));
                let majority = _mm512_ternarylogic_epi32::<0xe8>($a, $b, $c);
                $d = _mm512_add_epi32($d, t1);
                $h = _mm512_add_epi32(t1, _mm512_add_epi32(big0, majority));
            };
        }
        macro_rules! eight_rounds {
            ($k:expr, $j:expr) => {
                round!(a b c d e f g h, $k + $j, w[$j]);
                round!(h a b c d e f g, $k + $j + 1, w[$j + 1]);
                round!(g h a b c d e f, $k + $j + 2, w[$j + 2]);
                round!(f g h a b c d e, $k + $j + 3, w[$j + 3]);
                round!(e f g h a b c d, $k + $j + 4, w[$j + 4]);
                round!(d e f g h a b c, $k + $j + 5, w[$j + 5]);
                round!(c d e f g h a b, $k + $j + 6, w[$j + 6]);
                round!(b c d e f g h a, $k + $j + 7, w[$j + 7]);
            };
        }
        eight_rounds!(0, 0);
        eight_rounds!(0, 8);
        for first in [16, 32, 48] {
            for j in 0..16 {
                let (x, y) = (w[(j + 1) & 15], w[(j + 14) & 15]);
                let small0 = xor3(_mm512_ror_epi32::<7>(x), _mm512_ror_epi32::<18>(x), _mm512_srli_epi32::<3>(x));
                let small1 = xor3(_mm512_ror_epi32::<17>(y), _mm512_ror_epi32::<19>(y), _mm512_srli_epi32::<10>(y));
                w[j] = _mm512_add_epi32(_mm512_add_epi32(w[j], small0), _mm512_add_epi32(w[(j + 9) & 15], small1));
            }
            eight_rounds!(first, 0);
            eight_rounds!(first, 8);
        }
        for (word, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *word = _mm512_add_epi32(*word, new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HMAC by its definition, from the hash of whole byte strings. It uses nothing of the code under test.
    fn plain_hmac(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
        let mut inner = vec![0x36u8; 64];
        let mut outer = vec![0x5cu8; 64];
        for (at, byte) in key.iter().enumerate() {
            inner[at] ^= byte;
            outer[at] ^= byte;
        }
        inner.extend_from_slice(message);
        outer.extend_from_slice(&sha256(&inner));
        sha256(&outer)
    }

    fn add_modulo(sum: &mut [u8; 32], hash: &[u8; 32]) {
        let mut carry = 0u16;
        for (s, h) in sum.iter_mut().zip(hash).rev() {
            let total = u16::from(*s) + u16::from(*h) + carry;
            *s = total as u8;
            carry = total >> 8;
        }
    }

    /// Compares every path's sum over messages of these lengths with a sum by `plain_hmac`.
    fn check(lengths: &[usize]) {
        let key = std::array::from_fn(|i| i as u8 * 7 + 1);
        let (mut bytes, mut starts, mut blocks, mut expected) = (Vec::new(), Vec::new(), Vec::new(), [0u8; 32]);
        for (row, length) in lengths.iter().enumerate() {
            let start = bytes.len();
            let message: Vec<u8> = (0..*length).map(|i| (i * 31 + row * 17) as u8).collect();
            add_modulo(&mut expected, &plain_hmac(&key, &message));
            bytes.resize(start + length + 72, 0xee);
            bytes[start..start + length].copy_from_slice(&message);
            starts.push(start as u32);
            blocks.push(pad(&mut bytes[start..], *length));
        }
        let messages = Messages { bytes: &bytes, starts: &starts, blocks: &blocks };
        for path in HashPath::available() {
            let sum = sum_hmac(path, &HmacKey::new(&key), messages, &mut Scratch::default());
            assert_eq!(sum.fold(), expected, "{} over {lengths:?}", path.name());
        }
    }

    #[test]
    fn rfc_4231_case_2_is_met_after_padding_the_key() {
        let mut key = [0u8; 32];
        key[..4].copy_from_slice(b"Jefe");
        let message = b"what do ya want for nothing?";
        let mut slot = [0u8; 128];
        slot[..message.len()].copy_from_slice(message);
        let blocks = pad(&mut slot, message.len());
        let expected = [
            0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7, 0x5a, 0x00,
            0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43,
        ];
        for path in HashPath::available() {
            let messages = Messages { bytes: &slot, starts: &[0], blocks: &[blocks] };
            assert_eq!(sum_hmac(path, &HmacKey::new(&key), messages, &mut Scratch::default()).fold(), expected);
        }
    }

    #[test]
    fn every_path_sums_every_length_around_block_borders() {
        check(&(0..300).collect::<Vec<_>>());
    }

    #[test]
    fn every_path_sums_full_and_partial_groups() {
        for count in [0, 1, 15, 16, 17, 33, 64] {
            check(&vec![100; count]);
        }
    }

    #[test]
    fn every_path_sums_mixed_and_long_messages() {
        check(&[0, 5_000_000, 1, 70_000, 55, 56, 63, 64, 119, 120, 1_048_576, 1_048_500]);
    }

    #[test]
    fn carries_run_through_all_words() {
        let mut sum = WordSum::default();
        sum.add(&[u32::MAX; 8]);
        sum.add(&[0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(sum.fold(), [0; 32]);
    }
}
