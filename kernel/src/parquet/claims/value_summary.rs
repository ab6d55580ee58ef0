//! Summarizes the values of one page: their bounds, NaNs and bytes.

use crate::parquet::claims::dictionary::Dictionary;
use crate::parquet::format::runs::each_block;
use crate::parquet::ordered_value::OrderedValue;

/// A summary of a page's values.
#[derive(Default)]
pub struct ValueSummary {
    /// The least and the greatest value.
    pub bounds: Option<(OrderedValue, OrderedValue)>,
    /// The number of NaNs.
    pub nans: u64,
    /// The total length of byte arrays in bytes; 0 for other types.
    pub bytes: u64,
}

pub fn summarize_integers<T: Copy + Ord + Into<i64>>(values: impl Iterator<Item = T> + Clone) -> ValueSummary {
    // Two passes, each of which the compiler vectorizes.
    let bounds = values.clone().min().zip(values.max());
    let bounds = bounds.map(|(low, high)| (OrderedValue::Integer(low.into()), OrderedValue::Integer(high.into())));
    ValueSummary { bounds, ..ValueSummary::default() }
}

pub fn summarize_floats<T: Copy>(
    values: impl Iterator<Item = T>,
    is_nan: impl Fn(T) -> bool,
    order: impl Fn(&T, &T) -> std::cmp::Ordering,
    bound: impl Fn(T) -> OrderedValue,
) -> ValueSummary {
    let (mut bounds, mut nans) = (None, 0);
    for value in values {
        if is_nan(value) {
            nans += 1;
            continue;
        }
        bounds = Some(match bounds {
            None => (value, value),
            Some((low, high)) => (
                if order(&value, &low).is_lt() { value } else { low },
                if order(&value, &high).is_gt() { value } else { high },
            ),
        });
    }
    ValueSummary { bounds: bounds.map(|(low, high)| (bound(low), bound(high))), nans, bytes: 0 }
}

/// A page's dictionary indices: `count` numbers of `width` bits, in runs.
pub struct Indices<'a> {
    pub data: &'a [u8],
    pub width: u32,
    pub count: u64,
}

/// Summarizes values by their dictionary indices, and gives each block of valid indices to `visit`. With `counts_bytes`
/// the lengths of the values are added up. Returns `None` for an index outside the dictionary.
pub fn summarize_indices(
    dictionary: &Dictionary,
    indices: &Indices<'_>,
    counts_bytes: bool,
    mut visit: impl FnMut(&[u32], u64),
) -> Option<ValueSummary> {
    let mut bytes = 0;
    let mut visit_valid = |indices: &[u32], times: u64| {
        if counts_bytes {
            bytes += indices.iter().map(|at| dictionary.length(*at as usize)).sum::<u64>() * times;
        }
        visit(indices, times);
    };
    let mut summary = match (dictionary.keys(), dictionary.nans()) {
        (Some(keys), None) => summarize_keys(dictionary, keys, indices, &mut visit_valid),
        (Some(keys), Some(nans)) => summarize_keys_with_nans(dictionary, keys, nans, indices, &mut visit_valid),
        // There are too many values to sort, or they have no order.
        (None, _) => summarize_unsorted(dictionary, indices, &mut visit_valid),
    }?;
    summary.bytes = bytes;
    Some(summary)
}

/// Summarizes indices of a dictionary without NaN. Its keys are integers in the order of its values.
fn summarize_keys(
    dictionary: &Dictionary,
    keys: &[i64],
    indices: &Indices<'_>,
    visit: &mut impl FnMut(&[u32], u64),
) -> Option<ValueSummary> {
    let (mut low, mut high) = (i64::MAX, i64::MIN);
    each_block(indices.data, indices.width, indices.count, |block, times| {
        for at in block {
            let key = *keys.get(*at as usize)?;
            (low, high) = (low.min(key), high.max(key));
        }
        visit(block, times);
        Some(())
    })?;
    let bounds = Some((dictionary.value_of_key(low)?, dictionary.value_of_key(high)?));
    Some(ValueSummary { bounds, ..ValueSummary::default() })
}

fn summarize_keys_with_nans(
    dictionary: &Dictionary,
    keys: &[i64],
    nans: &[bool],
    indices: &Indices<'_>,
    visit: &mut impl FnMut(&[u32], u64),
) -> Option<ValueSummary> {
    let (mut bounds, mut nan_count): (Option<(i64, i64)>, u64) = (None, 0);
    each_block(indices.data, indices.width, indices.count, |block, times| {
        for at in block {
            let key = *keys.get(*at as usize)?;
            if nans[*at as usize] {
                nan_count += times;
            } else {
                bounds = Some(bounds.map_or((key, key), |(low, high)| (low.min(key), high.max(key))));
            }
        }
        visit(block, times);
        Some(())
    })?;
    let bounds = match bounds {
        Some((low, high)) => Some((dictionary.value_of_key(low)?, dictionary.value_of_key(high)?)),
        None => None,
    };
    Some(ValueSummary { bounds, nans: nan_count, ..ValueSummary::default() })
}

fn summarize_unsorted(
    dictionary: &Dictionary,
    indices: &Indices<'_>,
    visit: &mut impl FnMut(&[u32], u64),
) -> Option<ValueSummary> {
    let mut bounds: Option<(usize, usize)> = None;
    each_block(indices.data, indices.width, indices.count, |block, times| {
        for at in block {
            let at = Some(*at as usize).filter(|at| *at < dictionary.len())?;
            bounds = Some(match bounds {
                None => (at, at),
                Some((low, high)) => (
                    if dictionary.compare(at, low).is_lt() { at } else { low },
                    if dictionary.compare(at, high).is_gt() { at } else { high },
                ),
            });
        }
        visit(block, times);
        Some(())
    })?;
    let bounds = bounds.and_then(|(low, high)| Some((dictionary.bound(low)?, dictionary.bound(high)?)));
    Some(ValueSummary { bounds, ..ValueSummary::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parquet::ordered_value::Order;
    use parquet::basic::Type as Physical;

    fn summarize_texts(values: &[&[u8]], order: Order, indices: &[u8], count: u64) -> Option<ValueSummary> {
        let data: Vec<u8> =
            values.iter().flat_map(|value| [&(value.len() as u32).to_le_bytes(), *value].concat()).collect();
        let dictionary = Dictionary::new(data.into(), values.len() as u32, Physical::BYTE_ARRAY, 0, order)?;
        summarize_indices(&dictionary, &Indices { data: indices, width: 2, count }, true, |_, _| ())
    }

    #[test]
    fn a_page_of_indices_has_the_bounds_and_the_bytes_of_its_values() {
        // Eight packed numbers, 0 1 2 0 0 0 0 0, and five times 2.
        let seen = summarize_texts(&[b"b", b"abc", b"cd"], Order::Bytes, &[3, 0b10_0100, 0, 10, 2], 13).unwrap();
        let bounds = (OrderedValue::Bytes(b"abc".to_vec()), OrderedValue::Bytes(b"cd".to_vec()));
        assert_eq!((seen.bounds, seen.bytes), (Some(bounds), 6 + 3 + 2 + 10));
    }

    #[test]
    fn an_index_beyond_the_dictionary_is_none_at_any_position() {
        // `Order::Undefined` has no keys, like a dictionary with too many values to sort.
        for order in [Order::Bytes, Order::Undefined] {
            for indices in [&[3, 0b1100_0000, 0][..], &[3, 0, 0b1100_0000], &[16, 3], &[2, 1, 14, 3]] {
                assert!(summarize_texts(&[b"b", b"abc", b"cd"], order, indices, 8).is_none(), "{indices:?}");
            }
            assert!(summarize_texts(&[b"b", b"abc", b"cd"], order, &[3, 0b10_0100, 0], 8).is_some());
        }
    }
}
