//! Finds which rows differ between the intended and the staged side, in two passes over both sides. The first pass puts
//! rows into buckets and finds the buckets that differ. The second pass collects the rows of these buckets.
//!
//! Every row has two hashes under separate keys: one of its identity, which selects the bucket, and one of its content.
//! The XOR of these two is the row hash. A bucket holds the sum of the intended rows' row hashes minus the sum of the
//! staged rows' row hashes. This difference is zero if both sides have the same rows in the bucket.

use crate::canonical::batch_column::BatchColumn;
use crate::canonical::rows::{TILE_ROWS, Tile};
use crate::canonical::schema::Plan;
use crate::digest::{bind, pick};
use crate::error::{Fault, Result};
use crate::locate::hash::RowHash;
use crate::locate::place::Place;
use crate::locate::spool::{PREFIX_BYTES, Records};
use crate::locate::tally::Tally;
use arrow_array::{Array, StructArray};
use serde_json::Value;
use std::sync::Arc;

/// There are at most 2^24 buckets.
pub const BUCKET_BITS_MAX: u32 = 24;
/// Positions of projections in the plan, and of hashes in `Hashing::hashes`.
const IDENTITY: usize = 0;
const CONTENT: usize = 1;
/// Position of the hash of single cells in `Hashing::hashes`.
const FIELD: usize = 2;

/// The hashes of identities, contents and single cells. Each locating job has its own key.
#[derive(Clone)]
struct Hashing {
    plan: Arc<Plan>,
    hashes: Arc<[RowHash; 3]>,
}

impl Hashing {
    fn new(plan: Plan, key: &[u8; 32]) -> Result<Self> {
        if plan.projections.len() != 2 {
            return Err(Fault::new("projection_unknown", "", "identity and content", "different ones"));
        }
        let hashes = ["identity", "content", "field"].map(|purpose| RowHash::new(key, purpose));
        Ok(Hashing { plan: Arc::new(plan), hashes: Arc::new(hashes) })
    }

    /// The bound columns of a projection.
    fn columns<'a>(&self, bound: &'a [Option<BatchColumn>], projection: usize) -> Vec<&'a BatchColumn> {
        pick(bound, &self.plan.projections[projection])
    }
}

/// Appends the hash of every row in `first..end` to `out`.
fn hash_rows(
    tile: &mut Tile,
    columns: &[&BatchColumn],
    hash: &RowHash,
    first: usize,
    end: usize,
    out: &mut Vec<u128>,
) -> Result<()> {
    let mut next = first;
    while next < end {
        let filled = tile.fill(columns, next, end - next)?;
        out.extend((0..filled).map(|row| hash.hash(tile.row(row))));
        next += filled;
    }
    Ok(())
}

/// The first pass: the difference of both sides, by bucket.
pub struct Sieve {
    hashing: Hashing,
    tile: Tile,
    /// There are 2^`bits` buckets.
    bits: u32,
    /// For each bucket: the sum of the intended rows' row hashes minus the sum of the staged rows' row hashes.
    sums: Vec<u128>,
    /// For each bucket: the number of its rows, of both sides together.
    counts: Vec<u32>,
}

impl Sieve {
    /// The plan has two projections: identity, then content.
    pub fn new(plan: Plan, key: &[u8; 32], bits: u32) -> Result<Self> {
        if bits > BUCKET_BITS_MAX {
            let expected = format!("at most 2^{BUCKET_BITS_MAX} buckets");
            return Err(Fault::new("locate_too_large", "", expected, format!("2^{bits}")));
        }
        let (hashing, size) = (Hashing::new(plan, key)?, 1usize << bits);
        Ok(Sieve { hashing, tile: Tile::default(), bits, sums: vec![0; size], counts: vec![0; size] })
    }

    /// Adds every row of a batch, which belongs to the staged or to the intended side.
    pub fn add(&mut self, batch: &StructArray, staged: bool) -> Result<()> {
        let bound = bind(&self.hashing.plan, batch)?;
        let identity = self.hashing.columns(&bound, IDENTITY);
        let content = self.hashing.columns(&bound, CONTENT);
        let mut identity_hashes = Vec::with_capacity(TILE_ROWS);
        let mut content_hashes = Vec::with_capacity(TILE_ROWS);
        for first in (0..batch.len()).step_by(TILE_ROWS) {
            let end = (first + TILE_ROWS).min(batch.len());
            identity_hashes.clear();
            content_hashes.clear();
            hash_rows(&mut self.tile, &identity, &self.hashing.hashes[IDENTITY], first, end, &mut identity_hashes)?;
            hash_rows(&mut self.tile, &content, &self.hashing.hashes[CONTENT], first, end, &mut content_hashes)?;
            for (identity_hash, content_hash) in identity_hashes.iter().zip(&content_hashes) {
                let at = bucket_of(*identity_hash, self.bits);
                let row_hash = identity_hash ^ content_hash;
                let sum = &mut self.sums[at];
                *sum = if staged { sum.wrapping_sub(row_hash) } else { sum.wrapping_add(row_hash) };
                self.counts[at] = self.counts[at].saturating_add(1);
            }
        }
        Ok(())
    }

    /// Adds the sums and counts of a sieve that another thread filled. Refuses a sieve of another locating job.
    pub fn merge(&mut self, other: &Sieve) -> Result<()> {
        if self.bits != other.bits || self.hashing.hashes != other.hashing.hashes {
            return Err(Fault::new("locate_mismatch", "", "a sieve of the same locating job", "a different one"));
        }
        for (ours, theirs) in self.sums.iter_mut().zip(&other.sums) {
            *ours = ours.wrapping_add(*theirs);
        }
        for (ours, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *ours = ours.saturating_add(*theirs);
        }
        Ok(())
    }

    /// Returns the number of buckets that differ, and the number of rows in these buckets, of both sides together.
    pub fn count_differing(&self) -> (u64, u64) {
        let found = self.sums.iter().zip(&self.counts).filter(|(sum, _)| **sum != 0);
        found.fold((0, 0), |(buckets, rows), (_, count)| (buckets + 1, rows + u64::from(*count)))
    }

    /// Creates a collector for the rows of the buckets that differ; each thread needs its own. With `hash_fields` the
    /// collector hashes single cells too. `new_records` gets the number of cell hashes in a record, and creates the
    /// storage for the records.
    pub fn suspects(&self, hash_fields: bool, new_records: impl FnOnce(usize) -> Records) -> Suspects {
        let mut wanted = vec![0u64; self.sums.len().div_ceil(64)];
        for (at, _) in self.sums.iter().enumerate().filter(|(_, sum)| **sum != 0) {
            wanted[at / 64] |= 1 << (at % 64);
        }
        let field_count = if hash_fields { self.hashing.plan.projections[CONTENT].len() } else { 0 };
        Suspects {
            hashing: self.hashing.clone(),
            tile: Tile::default(),
            bits: self.bits,
            wanted,
            hash_fields,
            record: Vec::with_capacity(PREFIX_BYTES + 8 * field_count),
            records: new_records(field_count),
            absorbed: Vec::new(),
        }
    }
}

fn bucket_of(identity_hash: u128, bits: u32) -> usize {
    identity_hash as usize & ((1 << bits) - 1)
}

/// The second pass: the rows of buckets that differ, with their places and, if requested, a hash of each field.
pub struct Suspects {
    hashing: Hashing,
    tile: Tile,
    bits: u32,
    /// One bit per bucket: whether the bucket differs.
    wanted: Vec<u64>,
    hash_fields: bool,
    /// A buffer for one record.
    record: Vec<u8>,
    records: Records,
    /// The records of other threads.
    absorbed: Vec<Records>,
}

impl Suspects {
    /// Collects the rows of wanted buckets. `from` is the place of the batch's first row.
    pub fn add(&mut self, batch: &StructArray, from: Place) -> Result<()> {
        let hashing = self.hashing.clone();
        let bound = bind(&hashing.plan, batch)?;
        let identity = hashing.columns(&bound, IDENTITY);
        let content = hashing.columns(&bound, CONTENT);
        let mut identity_hashes = Vec::with_capacity(TILE_ROWS);
        for first in (0..batch.len()).step_by(TILE_ROWS) {
            let end = (first + TILE_ROWS).min(batch.len());
            identity_hashes.clear();
            hash_rows(&mut self.tile, &identity, &hashing.hashes[IDENTITY], first, end, &mut identity_hashes)?;
            let chosen: Vec<usize> =
                (0..identity_hashes.len()).filter(|at| self.is_wanted(identity_hashes[*at])).collect();
            if chosen.is_empty() {
                continue;
            }
            let content_hashes = self.hash_chosen(&content, &hashing.hashes[CONTENT], first, end, &chosen)?;
            let mut hashes_by_column = Vec::new();
            if self.hash_fields {
                for column in &content {
                    hashes_by_column.push(self.hash_chosen(
                        std::slice::from_ref(column),
                        &hashing.hashes[FIELD],
                        first,
                        end,
                        &chosen,
                    )?);
                }
            }
            for (at, row) in chosen.iter().enumerate() {
                let place = Place { row: from.row + (first + row) as u64, ..from };
                let cell_hashes = hashes_by_column.iter().map(|hashes| hashes[at]);
                self.push_record(identity_hashes[*row], content_hashes[at], place, cell_hashes)?;
            }
        }
        Ok(())
    }

    fn is_wanted(&self, identity_hash: u128) -> bool {
        let at = bucket_of(identity_hash, self.bits);
        self.wanted[at / 64] >> (at % 64) & 1 == 1
    }

    /// Hashes the chosen rows of `first..end`. If they are many, all rows are hashed, because this is faster than
    /// hashing the chosen ones one by one.
    fn hash_chosen(
        &mut self,
        columns: &[&BatchColumn],
        hash: &RowHash,
        first: usize,
        end: usize,
        chosen: &[usize],
    ) -> Result<Vec<u128>> {
        let mut hashes = Vec::with_capacity(chosen.len());
        if chosen.len() * 4 < end - first {
            for row in chosen {
                hash_rows(&mut self.tile, columns, hash, first + row, first + row + 1, &mut hashes)?;
            }
            return Ok(hashes);
        }
        hash_rows(&mut self.tile, columns, hash, first, end, &mut hashes)?;
        Ok(chosen.iter().map(|row| hashes[*row]).collect())
    }

    fn push_record(
        &mut self,
        identity_hash: u128,
        content_hash: u128,
        place: Place,
        cell_hashes: impl Iterator<Item = u128>,
    ) -> Result<()> {
        self.record.clear();
        self.record.extend_from_slice(&identity_hash.to_be_bytes());
        self.record.extend_from_slice(&content_hash.to_be_bytes());
        self.record.extend_from_slice(&place.pack()?.to_be_bytes());
        cell_hashes.for_each(|hash| self.record.extend_from_slice(&(hash as u64).to_be_bytes()));
        self.records.push(&self.record)
    }

    /// Takes over the rows that another thread has collected. Refuses rows of another locating job.
    pub fn absorb(&mut self, other: Suspects) -> Result<()> {
        if self.hashing.hashes != other.hashing.hashes || self.hash_fields != other.hash_fields {
            return Err(Fault::new("locate_mismatch", "", "suspects of the same locating job", "different ones"));
        }
        self.absorbed.push(other.records);
        self.absorbed.extend(other.absorbed);
        Ok(())
    }

    /// Whether records were written to disk.
    pub fn is_spooled(&self) -> bool {
        self.records.is_spooled() || self.absorbed.iter().any(Records::is_spooled)
    }

    /// Reports the missing, added, duplicated and modified rows as JSON, with up to `samples` places of each class.
    pub fn tally(self, samples: usize) -> Result<Value> {
        let columns = if self.hash_fields { self.hashing.plan.projections[CONTENT].clone() } else { Vec::new() };
        let names = columns.iter().map(|at| self.hashing.plan.fields[*at].name.clone()).collect();
        let mut parts = self.absorbed;
        parts.push(self.records);
        let mut tally = Tally::new(names, samples);
        Records::merge(parts, |record| tally.add(record))?;
        Ok(tally.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locate::place::ROW_BITS;
    use crate::locate::spool::Spool;
    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use serde_json::json;

    const PLAN: &str = r#"{"schema":{"type":"struct","fields":[{"id":1,"name":"id","required":false,"type":"long"},
        {"id":2,"name":"town","required":false,"type":"string"}]},"mode":"stored","construction":"hmac-sha256",
        "projections":[["id"],["id","town"]]}"#;

    fn batch(rows: &[(i64, &str)]) -> StructArray {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(id, _)| *id)));
        let towns: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|(_, town)| *town)));
        RecordBatch::try_from_iter([("id", ids), ("town", towns)]).unwrap().into()
    }

    fn sieve(bits: u32) -> Sieve {
        Sieve::new(Plan::parse(PLAN).unwrap(), &[7; 32], bits).unwrap()
    }

    /// The report about these two sides, and whether records were spooled. `name` is a part of the spool's name.
    fn locate(intent: &[(i64, &str)], staged: &[(i64, &str)], memory_bytes: usize, name: &str) -> (Value, bool) {
        let mut sides = sieve(4);
        sides.add(&batch(intent), false).unwrap();
        let mut staged_side = sieve(4);
        staged_side.add(&batch(staged), true).unwrap();
        sides.merge(&staged_side).unwrap();
        let path = std::env::temp_dir().join(format!("pvdm-locate-{}-{name}", std::process::id()));
        let spool = || Spool { path: path.clone(), limit_bytes: 1 << 20 };
        let mut first = sides.suspects(true, |fields| Records::new(fields, memory_bytes, spool()));
        first.add(&batch(intent), Place { staged: false, file: 0, row: 0 }).unwrap();
        let mut second = sides.suspects(true, |fields| Records::new(fields, 1 << 20, spool()));
        second.add(&batch(staged), Place { staged: true, file: 3, row: 10 }).unwrap();
        first.absorb(second).unwrap();
        assert!(!path.exists());
        let spooled = first.is_spooled();
        (first.tally(5).unwrap(), spooled)
    }

    #[test]
    fn sides_with_the_same_rows_in_another_order_leave_nothing() {
        let mut sides = sieve(8);
        sides.add(&batch(&[(1, "a"), (2, "b"), (2, "b")]), false).unwrap();
        sides.add(&batch(&[(2, "b"), (1, "a"), (2, "b")]), true).unwrap();
        assert_eq!(sides.count_differing(), (0, 0));
    }

    #[test]
    fn exchanged_keys_are_found_though_no_column_changed() {
        let mut sides = sieve(0);
        sides.add(&batch(&[(1, "a"), (2, "b")]), false).unwrap();
        sides.add(&batch(&[(1, "b"), (2, "a")]), true).unwrap();
        assert_eq!(sides.count_differing(), (1, 4));
    }

    #[test]
    fn every_class_is_reported_with_places_and_fields() {
        let intent = [(1, "a"), (2, "b"), (3, "c"), (4, "d")];
        let staged = [(2, "x"), (3, "c"), (3, "c"), (4, "d"), (9, "new")];
        for (memory, name) in [(1 << 20, "memory"), (60, "spool")] {
            let (found, spooled) = locate(&intent, &staged, memory, name);
            assert_eq!(spooled, name == "spool");
            assert_eq!(found["missing"]["rows"], 1);
            assert_eq!(found["missing"]["samples"][0]["at"], json!([0, 0]));
            assert_eq!(found["added"]["samples"][0]["at"], json!([3, 14]));
            assert_eq!(found["duplicated"]["files"], json!([[3, 1]]));
            assert_eq!(found["duplicated"]["samples"][0]["at"], json!([3, 12]));
            assert_eq!(found["modified"]["samples"][0]["fields"], json!(["town"]));
            assert_eq!(found["modified"]["samples"][0]["intent"], json!([0, 1]));
            assert_eq!((&found["fields"], &found["compared"]), (&json!([["town", 1]]), &json!(1)));
        }
    }

    #[test]
    fn a_key_that_is_not_unique_pairs_what_is_left_after_equal_rows() {
        let (found, _) =
            locate(&[(1, "a"), (1, "b"), (1, "c")], &[(1, "a"), (1, "x"), (1, "y"), (1, "z")], 1 << 20, "n");
        assert_eq!((&found["modified"]["rows"], &found["added"]["rows"]), (&json!(2), &json!(1)));
        assert_eq!((&found["missing"]["rows"], &found["duplicated"]["rows"]), (&json!(0), &json!(0)));
    }

    #[test]
    fn a_full_spool_and_a_place_out_of_range_are_faults() {
        let path = std::env::temp_dir().join(format!("pvdm-locate-{}-full", std::process::id()));
        let mut sides = sieve(4);
        sides.add(&batch(&[(1, "a"), (2, "b")]), false).unwrap();
        let mut suspects = sides.suspects(false, |fields| Records::new(fields, 1, Spool { path, limit_bytes: 1 }));
        let place_out_of_range = Place { staged: false, file: 0, row: 1 << ROW_BITS };
        assert_eq!(suspects.add(&batch(&[(1, "a")]), place_out_of_range).unwrap_err().code, "locate_too_large");
        let rows = batch(&[(1, "a"), (2, "b")]);
        let place = Place { staged: false, file: 0, row: 0 };
        assert_eq!(suspects.add(&rows, place).unwrap_err().code, "locate_spool_full");
    }

    #[test]
    fn a_sieve_of_another_locating_job_is_refused() {
        let other = Sieve::new(Plan::parse(PLAN).unwrap(), &[8; 32], 4).unwrap();
        assert_eq!(sieve(4).merge(&other).unwrap_err().code, "locate_mismatch");
        assert_eq!(sieve(5).merge(&sieve(4)).unwrap_err().code, "locate_mismatch");
        assert!(Sieve::new(Plan::parse(PLAN).unwrap(), &[8; 32], BUCKET_BITS_MAX + 1).is_err());
    }
}
