//! Classifies the rows of each key as missing, added, duplicated or modified, by exact multiset rules.
//!
//! A key is the identity of a row. Among the rows of one key, an intended and a staged row of equal content cancel.
//! Further staged rows with the content of an intended row are duplicated. Each remaining intended row is paired with a
//! remaining staged row; the pair counts as one modified row. Rows without a partner are missing if intended, and added
//! if staged.

use crate::locate::place::Place;
use crate::locate::spool::PREFIX_BYTES;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// A record begins with the hash of its key.
const KEY_BYTES: usize = 16;
/// The hashes of key and content together, at the start of a record.
const ROW_BYTES: usize = 32;
/// A list of unmatched rows keeps at most this many bytes of whole records, or `HELD_MIN` records if these have more
/// bytes. Further rows are only counted by file.
const HELD_BYTES: usize = 1 << 24;
const HELD_MIN: usize = 64;
/// Positions of the classes in `NAMES` and in the fields of `Tally`.
const MISSING: usize = 0;
const ADDED: usize = 1;
const DUPLICATED: usize = 2;
const MODIFIED: usize = 3;
const NAMES: [&str; 4] = ["missing", "added", "duplicated", "modified"];

/// Rows without a partner so far. The first rows are kept as whole records; further rows are only counted by file.
#[derive(Default)]
struct UnmatchedRows {
    whole: VecDeque<Box<[u8]>>,
    /// Key: a file. Value: the number of its rows that are only counted.
    counted: BTreeMap<u32, u64>,
    /// The number of all rows, kept whole or only counted.
    rows: u64,
}

impl UnmatchedRows {
    fn push(&mut self, record: &[u8], held_max: usize) {
        self.rows += 1;
        if self.whole.len() < held_max {
            self.whole.push_back(record.into());
        } else {
            *self.counted.entry(place_of(record).file).or_default() += 1;
        }
    }

    fn pop(&mut self) -> Option<MatchedRow> {
        self.rows = self.rows.checked_sub(1)?;
        if let Some(record) = self.whole.pop_front() {
            return Some(MatchedRow::Whole(record));
        }
        let (file, count) = self.counted.iter_mut().next().map(|(file, count)| (*file, count))?;
        *count -= 1;
        if *count == 0 {
            self.counted.remove(&file);
        }
        Some(MatchedRow::Counted(file))
    }

    /// Takes over all rows of `other`.
    fn extend(&mut self, other: &mut UnmatchedRows, held_max: usize) {
        let whole = std::mem::take(&mut other.whole);
        // `push` counts the whole rows.
        self.rows += other.rows - whole.len() as u64;
        whole.iter().for_each(|record| self.push(record, held_max));
        for (file, count) in std::mem::take(&mut other.counted) {
            *self.counted.entry(file).or_default() += count;
        }
        other.rows = 0;
    }

    /// The first place among the rows that are kept whole.
    fn first(&self) -> Option<Place> {
        self.whole.iter().map(|record| place_number(record)).min().map(Place::unpack)
    }
}

/// A row that was taken from `UnmatchedRows`: its record, or only its file.
enum MatchedRow {
    Whole(Box<[u8]>),
    Counted(u32),
}

impl MatchedRow {
    fn file(&self) -> u32 {
        match self {
            MatchedRow::Whole(record) => place_of(record).file,
            MatchedRow::Counted(file) => *file,
        }
    }
}

/// A key that has rows of a class.
struct Sample {
    /// The first place of such a row.
    place: Place,
    /// The number of the key's rows of the class.
    rows: u64,
    /// For a modified row: the place of the intended row.
    intent: Option<Place>,
    /// For a modified row: the positions of the fields that differ, if fields are hashed.
    fields: Option<Vec<usize>>,
}

pub struct Tally {
    /// The names of the hashed fields; empty if fields are not hashed.
    names: Vec<String>,
    samples_max: usize,
    /// The most whole records that a list of unmatched rows keeps.
    held_max: usize,
    /// The number of wrong rows of each class.
    counts: [u64; 4],
    /// For each class: the number of wrong rows in each file.
    files: [BTreeMap<u32, u64>; 4],
    /// For each hashed field: the number of modified rows in which it differs.
    fields: Vec<u64>,
    /// The number of modified rows whose fields were compared.
    compared: u64,
    /// For each class: the samples by their packed places.
    samples: [BTreeMap<u64, Sample>; 4],
    /// The hashes of the current key and content, that is, of the record that was added last.
    current: Option<[u8; ROW_BYTES]>,
    /// The number of intended rows with the current key and content.
    intended: u64,
    /// Of these intended rows: those that have no equal staged row so far.
    unmatched: UnmatchedRows,
    /// Intended rows of the current key without a staged row of equal content.
    missing: UnmatchedRows,
    /// Staged rows of the current key whose content no intended row has.
    extra: UnmatchedRows,
    /// The number of duplicated rows of the current key.
    copies: u64,
    /// The first place of a duplicated row of the current key.
    first_copy: Option<Place>,
}

impl Tally {
    pub fn new(names: Vec<String>, samples_max: usize) -> Self {
        let held_max = (HELD_BYTES / (PREFIX_BYTES + 8 * names.len())).max(HELD_MIN);
        Tally {
            fields: vec![0; names.len()],
            names,
            samples_max,
            held_max,
            counts: [0; 4],
            files: Default::default(),
            compared: 0,
            samples: Default::default(),
            current: None,
            intended: 0,
            unmatched: UnmatchedRows::default(),
            missing: UnmatchedRows::default(),
            extra: UnmatchedRows::default(),
            copies: 0,
            first_copy: None,
        }
    }

    /// Adds a record. Records must come sorted by key, content, side (intended before staged) and place.
    pub fn add(&mut self, record: &[u8]) {
        if self.current.is_none_or(|current| current != record[..ROW_BYTES]) {
            self.end_row();
            if self.current.is_some_and(|current| current[..KEY_BYTES] != record[..KEY_BYTES]) {
                self.end_key();
            }
            let mut current = [0; ROW_BYTES];
            current.copy_from_slice(&record[..ROW_BYTES]);
            self.current = Some(current);
        }
        let place = place_of(record);
        if !place.staged {
            self.intended += 1;
            self.unmatched.push(record, self.held_max);
        } else if self.unmatched.pop().is_none() {
            if self.intended > 0 {
                self.count(DUPLICATED, place.file, 1);
                self.copies += 1;
                let first = self.first_copy.unwrap_or(place);
                self.first_copy = Some(if is_before(place, first) { place } else { first });
            } else {
                self.extra.push(record, self.held_max);
            }
        }
    }

    /// Ends the records of one key and content.
    fn end_row(&mut self) {
        self.intended = 0;
        let mut unmatched = std::mem::take(&mut self.unmatched);
        self.missing.extend(&mut unmatched, self.held_max);
    }

    /// Ends the records of one key: pairs missing and extra rows as modified, and counts the others.
    fn end_key(&mut self) {
        let pairs = self.missing.rows.min(self.extra.rows);
        let mut first: Option<Sample> = None;
        for _ in 0..pairs {
            let (Some(intended), Some(staged)) = (self.missing.pop(), self.extra.pop()) else { break };
            self.count(MODIFIED, staged.file(), 1);
            // Only whole records have a place and the hashes of fields.
            let (MatchedRow::Whole(intended), MatchedRow::Whole(staged)) = (intended, staged) else { continue };
            let fields = self.compare(&intended, &staged);
            let (place, from) = (place_of(&staged), place_of(&intended));
            if first.as_ref().is_none_or(|first| is_before(place, first.place)) {
                first = Some(Sample { place, rows: pairs, intent: Some(from), fields });
            }
        }
        if let Some(sample) = first {
            self.add_sample(MODIFIED, sample);
        }
        for class in [MISSING, ADDED] {
            let left = std::mem::take(if class == MISSING { &mut self.missing } else { &mut self.extra });
            if let Some(place) = left.first() {
                self.add_sample(class, Sample { place, rows: left.rows, intent: None, fields: None });
            }
            for record in &left.whole {
                self.count(class, place_of(record).file, 1);
            }
            for (file, count) in left.counted {
                self.count(class, file, count);
            }
        }
        if let Some(place) = self.first_copy.take() {
            self.add_sample(DUPLICATED, Sample { place, rows: self.copies, intent: None, fields: None });
        }
        self.copies = 0;
    }

    fn count(&mut self, class: usize, file: u32, rows: u64) {
        self.counts[class] += rows;
        *self.files[class].entry(file).or_default() += rows;
    }

    /// Finds the fields that differ between two rows. Returns `None` if fields were not hashed.
    fn compare(&mut self, intended: &[u8], staged: &[u8]) -> Option<Vec<usize>> {
        if self.names.is_empty() {
            return None;
        }
        self.compared += 1;
        let cells = intended[PREFIX_BYTES..].chunks_exact(8).zip(staged[PREFIX_BYTES..].chunks_exact(8));
        let found: Vec<usize> = cells.enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at).collect();
        found.iter().for_each(|at| self.fields[*at] += 1);
        Some(found)
    }

    /// Adds a sample. If the class then has too many samples, drops the one with the last place.
    fn add_sample(&mut self, class: usize, sample: Sample) {
        let Ok(at) = sample.place.pack() else { return };
        self.samples[class].insert(at, sample);
        if self.samples[class].len() > self.samples_max {
            self.samples[class].pop_last();
        }
    }

    /// The report of all classes, as JSON.
    pub fn finish(mut self) -> Value {
        self.end_row();
        self.end_key();
        let fields: Vec<Value> = self
            .names
            .iter()
            .zip(&self.fields)
            .filter(|(_, count)| **count > 0)
            .map(|(name, count)| json!([name, count]))
            .collect();
        let classes = (0..NAMES.len()).map(|class| {
            let report = json!({
                "rows": self.counts[class],
                "files": self.files[class].iter().collect::<Vec<_>>(),
                "samples": self.samples[class].values().map(|sample| self.sample_to_json(sample)).collect::<Vec<_>>(),
            });
            (NAMES[class].to_owned(), report)
        });
        let mut report: serde_json::Map<String, Value> = classes.collect();
        report.insert("fields".to_owned(), json!(fields));
        report.insert("compared".to_owned(), json!(self.compared));
        Value::Object(report)
    }

    /// `at` and `intent` are [file, row]. `intent` is the intended row of a modified row, otherwise null.
    fn sample_to_json(&self, sample: &Sample) -> Value {
        let names = sample.fields.as_ref().map(|found| found.iter().map(|at| &self.names[*at]).collect::<Vec<_>>());
        let pair = |place: Place| json!([place.file, place.row]);
        json!({"at": pair(sample.place), "rows": sample.rows, "intent": sample.intent.map(pair), "fields": names})
    }
}

fn place_number(record: &[u8]) -> u64 {
    record[ROW_BYTES..PREFIX_BYTES].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn place_of(record: &[u8]) -> Place {
    Place::unpack(place_number(record))
}

fn is_before(a: Place, b: Place) -> bool {
    (a.file, a.row) < (b.file, b.row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: u8, content: u8, place: Place) -> Vec<u8> {
        let mut record = vec![key; KEY_BYTES];
        record.extend([content; ROW_BYTES - KEY_BYTES]);
        record.extend(place.pack().unwrap().to_be_bytes());
        record
    }

    /// With more rows of one key than are kept whole, the others are counted by file.
    #[test]
    fn rows_beyond_those_kept_whole_are_counted() {
        let mut tally = Tally::new(Vec::new(), 3);
        tally.held_max = 4;
        for row in 0..20 {
            tally.add(&record(1, 1, Place { staged: false, file: row as u32 % 2, row }));
        }
        for row in 0..5 {
            tally.add(&record(1, 1, Place { staged: true, file: 7, row }));
        }
        for row in 5..11 {
            tally.add(&record(1, 2, Place { staged: true, file: 8, row }));
        }
        let found = tally.finish();
        assert_eq!((&found["modified"]["rows"], &found["missing"]["rows"]), (&json!(6), &json!(9)));
        assert_eq!(found["modified"]["files"], json!([[8, 6]]));
        let files = found["missing"]["files"].as_array().unwrap();
        assert_eq!(files.iter().filter_map(|file_and_rows| file_and_rows[1].as_u64()).sum::<u64>(), 9);
    }
}
