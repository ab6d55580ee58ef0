//! A column chunk's dictionary. Each value has a key: a number, so that two keys compare as their values do. The bounds
//! of a page are the values of the least and the greatest key among the page's indices.

use crate::parquet::ordered_value::{Order, OrderedValue};
use bytes::Bytes;
use parquet::basic::Type as Physical;
use std::cmp::Ordering;
use std::collections::HashSet;

/// Dictionaries with more values than this are not sorted. Sorting pays off if many rows use few values.
const RANKED_MAX: usize = 4_096;

#[derive(Debug)]
pub struct Dictionary {
    data: Bytes,
    order: Order,
    /// The start and end of each value.
    spans: Vec<(u32, u32)>,
    keys: Keys,
    /// For each value, whether it is NaN. `None` if no value is NaN.
    nans: Option<Vec<bool>>,
    /// For each value, whether a row uses it. Empty if that is not recorded.
    used: Vec<bool>,
}

/// The key of each value.
#[derive(Debug)]
enum Keys {
    /// The keys of numbers: integers themselves, and floats as integers of the same order.
    Numbers(Vec<i64>),
    /// The keys of byte strings and decimals: first the rank of each value, then for each rank the value's position.
    Ranks(Vec<i64>, Vec<usize>),
    /// No keys, because there are too many values to sort, or the values have no order. Values are compared directly.
    None,
}

impl Dictionary {
    /// Returns `None` if the bytes are not exactly `count` values.
    pub fn new(data: Bytes, count: u32, physical: Physical, width: usize, order: Order) -> Option<Dictionary> {
        let count = usize::try_from(count).ok()?;
        let spans = find_spans(&data, count, physical, width)?;
        let mut dictionary = Dictionary { data, order, spans, keys: Keys::None, nans: None, used: Vec::new() };
        match order {
            Order::Int32 | Order::Int64 | Order::Float | Order::Double | Order::Boolean => {
                let keys = (0..count).map(|at| dictionary.number(at)).collect::<Option<Vec<i64>>>()?;
                dictionary.keys = Keys::Numbers(keys);
                let nans: Vec<bool> = (0..count).map(|at| dictionary.is_nan(at)).collect();
                dictionary.nans = nans.contains(&true).then_some(nans);
            }
            Order::Decimal if (0..count).any(|at| order.value(dictionary.value(at)).is_none()) => return None,
            Order::Bytes | Order::Decimal if count <= RANKED_MAX => dictionary.rank(),
            _ => {}
        }
        Some(dictionary)
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// All values, as stored.
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    pub fn value(&self, at: usize) -> &[u8] {
        let (start, end) = self.spans[at];
        &self.data[start as usize..end as usize]
    }

    /// The value at a position, in the form that is compared. Returns `None` if values have no order.
    pub fn bound(&self, at: usize) -> Option<OrderedValue> {
        self.order.value(self.value(at))
    }

    /// The length of a value in bytes.
    pub fn length(&self, at: usize) -> u64 {
        self.value(at).len() as u64
    }

    /// Starts to record which values rows use.
    pub fn start_marking(&mut self) {
        self.used = vec![false; self.spans.len()];
    }

    /// Records that a row uses the value.
    pub fn mark(&mut self, at: usize) {
        if let Some(used) = self.used.get_mut(at) {
            *used = true;
        }
    }

    /// The values that rows use, if that was recorded.
    pub fn in_use(&self) -> impl Iterator<Item = &[u8]> {
        self.used.iter().enumerate().filter(|(_, used)| **used).map(|(at, _)| self.value(at))
    }

    /// The number of distinct values that rows use.
    pub fn distinct_in_use(&self) -> u64 {
        self.in_use().collect::<HashSet<&[u8]>>().len() as u64
    }

    fn is_nan(&self, at: usize) -> bool {
        match self.bound(at) {
            Some(OrderedValue::Float(value)) => value.is_nan(),
            Some(OrderedValue::Double(value)) => value.is_nan(),
            _ => false,
        }
    }

    pub fn nans(&self) -> Option<&[bool]> {
        self.nans.as_deref()
    }

    /// The key of each value. Returns `None` if the values have no order, or are too many to sort.
    pub fn keys(&self) -> Option<&[i64]> {
        match &self.keys {
            Keys::Numbers(keys) | Keys::Ranks(keys, _) => Some(keys),
            Keys::None => None,
        }
    }

    /// The value whose key is `key`.
    pub fn value_of_key(&self, key: i64) -> Option<OrderedValue> {
        match &self.keys {
            Keys::Ranks(_, sorted) => {
                let at = *sorted.get(usize::try_from(key).ok()?)?;
                self.order.value(self.value(at))
            }
            _ => Some(match self.order {
                Order::Float => OrderedValue::Float(f32::from_bits(float_order_key32(key as i32) as u32)),
                Order::Double => OrderedValue::Double(f64::from_bits(float_order_key64(key) as u64)),
                _ => OrderedValue::Integer(key),
            }),
        }
    }

    pub fn compare(&self, a: usize, b: usize) -> Ordering {
        match self.order {
            Order::Bytes => self.value(a).cmp(self.value(b)),
            order => match (order.value(self.value(a)), order.value(self.value(b))) {
                (Some(a), Some(b)) => a.order(&b),
                _ => Ordering::Equal,
            },
        }
    }

    pub fn is_sorted(&self) -> bool {
        self.order != Order::Undefined && (1..self.len()).all(|at| self.compare(at - 1, at).is_le())
    }

    /// Sorts the values, and takes their ranks as keys.
    fn rank(&mut self) {
        let mut sorted: Vec<usize> = (0..self.len()).collect();
        sorted.sort_unstable_by(|a, b| self.compare(*a, *b));
        let mut ranks = vec![0; self.len()];
        for (rank, at) in sorted.iter().enumerate() {
            ranks[*at] = rank as i64;
        }
        self.keys = Keys::Ranks(ranks, sorted);
    }

    /// The key of a number. Returns `None` for values of other types.
    fn number(&self, at: usize) -> Option<i64> {
        Some(match self.order.value(self.value(at))? {
            OrderedValue::Integer(value) => value,
            OrderedValue::Float(value) => float_order_key32(value.to_bits() as i32).into(),
            OrderedValue::Double(value) => float_order_key64(value.to_bits() as i64),
            _ => return None,
        })
    }
}

/// Maps the bits of a 32-bit float to an integer that compares like the float, and back.
fn float_order_key32(bits: i32) -> i32 {
    bits ^ ((bits >> 31) as u32 >> 1) as i32
}

/// Maps the bits of a 64-bit float in the same way.
fn float_order_key64(bits: i64) -> i64 {
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// Finds the spans of `count` plain values. Returns `None` if they do not fill the bytes exactly.
fn find_spans(data: &[u8], count: usize, physical: Physical, width: usize) -> Option<Vec<(u32, u32)>> {
    let size = u32::try_from(data.len()).ok()?;
    if physical == Physical::BYTE_ARRAY {
        let (mut found, mut at) = (Vec::new(), 0);
        // An empty value takes four bytes of the page, and its span eight bytes of memory. So the memory is limited by
        // collecting at most `count` spans.
        for value in split_byte_arrays(data).take(count) {
            found.push((at + 4, at + 4 + value.len() as u32));
            at += 4 + value.len() as u32;
        }
        return (at == size && found.len() == count).then_some(found);
    }
    let width = u32::try_from(width).ok().filter(|width| *width > 0)?;
    let count = u32::try_from(count).ok().filter(|count| count.checked_mul(width) == Some(size))?;
    Some((0..count).map(|at| (at * width, (at + 1) * width)).collect())
}

/// The byte arrays of a plain page, up to the first incomplete one.
pub fn split_byte_arrays(mut data: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    std::iter::from_fn(move || {
        let (length, rest) = data.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        data = rest;
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_keep_their_order_as_numbers() {
        let sorted = [f64::NEG_INFINITY, -1.5, -0.0, 0.0, 2.5, f64::INFINITY];
        let keys: Vec<i64> = sorted.iter().map(|value| float_order_key64(value.to_bits() as i64)).collect();
        assert!(
            keys.is_sorted()
                && keys.iter().zip(sorted).all(|(key, value)| float_order_key64(*key) as u64 == value.to_bits())
        );
    }

    #[test]
    fn a_dictionary_is_exactly_its_values() {
        let data = Bytes::from_static(b"\x01\0\0\0b\x02\0\0\0ab");
        let read = |count| Dictionary::new(data.clone(), count, Physical::BYTE_ARRAY, 0, Order::Bytes);
        let found = read(2).unwrap();
        assert_eq!((found.value(0), found.value(1), found.is_sorted()), (&b"b"[..], &b"ab"[..], false));
        assert_eq!(found.keys().unwrap(), [1, 0]);
        assert!(read(1).is_none() && read(3).is_none());
    }
}
