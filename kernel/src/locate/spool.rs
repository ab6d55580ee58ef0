//! Stores records of fixed width, and reads them back in sorted order. Records are kept in memory up to a limit. Beyond
//! the limit they are written to disk in sorted runs.

use crate::error::{Fault, Result};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions, remove_file};
use std::io::{Error, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// A record begins with the hashes of identity and content (16 bytes each) and the packed place (8). Records are
/// ordered by this prefix.
pub const PREFIX_BYTES: usize = 40;
/// How many bytes of a run are read at once when runs are merged.
const READ_BYTES: usize = 1 << 18;
/// How many bytes of a run are written at once.
const WRITE_BYTES: usize = 1 << 20;
type Prefix = [u8; PREFIX_BYTES];

/// The file for records that do not fit in memory. Its name is removed as soon as the file is open.
pub struct Spool {
    pub path: PathBuf,
    pub limit_bytes: u64,
}

/// Storage for records. `push` fills it, and `merge` reads it in order.
pub struct Records {
    /// The bytes of one record.
    width: usize,
    /// The most bytes to hold in memory.
    memory_bytes: usize,
    spool: Spool,
    /// The records in memory, in the order in which they came.
    buffer: Vec<u8>,
    file: Option<File>,
    /// For each sorted run in the file: its start, and its length in bytes.
    runs: Vec<(u64, u64)>,
    written_bytes: u64,
}

impl Records {
    /// Creates storage for records with this many cell hashes (8 bytes each) after their prefix.
    pub fn new(fields: usize, memory_bytes: usize, spool: Spool) -> Self {
        let width = PREFIX_BYTES + 8 * fields;
        Records { width, memory_bytes, spool, buffer: Vec::new(), file: None, runs: Vec::new(), written_bytes: 0 }
    }

    /// Adds a record. If the memory is full, writes the records in memory to disk first.
    pub fn push(&mut self, record: &[u8]) -> Result<()> {
        debug_assert_eq!(record.len(), self.width);
        // The sort order of a run needs 4 bytes for each record.
        let rows = self.buffer.len() / self.width + 1;
        if rows * (self.width + 4) > self.memory_bytes && !self.buffer.is_empty() {
            self.spill()?;
        }
        self.buffer.extend_from_slice(record);
        Ok(())
    }

    pub fn is_spooled(&self) -> bool {
        !self.runs.is_empty()
    }

    /// The positions of the records in memory, in sorted order.
    fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..(self.buffer.len() / self.width) as u32).collect();
        order.sort_unstable_by(|a, b| self.prefix(*a).cmp(self.prefix(*b)));
        order
    }

    fn record(&self, at: u32) -> &[u8] {
        &self.buffer[at as usize * self.width..][..self.width]
    }

    fn prefix(&self, at: u32) -> &[u8] {
        &self.record(at)[..PREFIX_BYTES]
    }

    /// Writes the records in memory to the spool as a sorted run. Refuses to exceed the spool's limit.
    fn spill(&mut self) -> Result<()> {
        let size = self.buffer.len() as u64;
        if self.written_bytes + size > self.spool.limit_bytes {
            let expected = format!("at most {} bytes of spool", self.spool.limit_bytes);
            return Err(Fault::new("locate_spool_full", "", expected, "more"));
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => create_unnamed(&self.spool.path).map_err(unwritable)?,
        };
        let order = self.order();
        let mut chunk = Vec::with_capacity(WRITE_BYTES + self.width);
        for at in order {
            chunk.extend_from_slice(self.record(at));
            if chunk.len() >= WRITE_BYTES {
                file.write_all(&chunk).map_err(unwritable)?;
                chunk.clear();
            }
        }
        file.write_all(&chunk).map_err(unwritable)?;
        self.runs.push((self.written_bytes, size));
        self.written_bytes += size;
        self.buffer.clear();
        self.file = Some(file);
        Ok(())
    }

    /// Gives every record of all parts to `take`, in order.
    pub fn merge(mut parts: Vec<Records>, mut take: impl FnMut(&[u8])) -> Result<()> {
        let mut cursors = Vec::new();
        for (part, records) in parts.iter().enumerate() {
            cursors.extend(records.runs.iter().map(|(start, size)| Cursor::spooled(part, *start, *size)));
            cursors.push(Cursor { part, order: records.order(), ..Cursor::default() });
        }
        let mut heap = BinaryHeap::with_capacity(cursors.len());
        for (at, cursor) in cursors.iter_mut().enumerate() {
            if let Some(prefix) = cursor.advance(&mut parts)? {
                heap.push(Reverse((prefix, at)));
            }
        }
        while let Some(Reverse((_, at))) = heap.pop() {
            take(cursors[at].current(&parts));
            if let Some(prefix) = cursors[at].advance(&mut parts)? {
                heap.push(Reverse((prefix, at)));
            }
        }
        Ok(())
    }
}

/// A position in one run: sorted records in memory, or a range of the spool.
#[derive(Default)]
struct Cursor {
    /// The position of the run's `Records` among the parts.
    part: usize,
    /// For a run in memory: the positions of its records, in sorted order.
    order: Vec<u32>,
    /// For a run in memory: the number of records that were taken.
    next: usize,
    /// Whether the run is in the spool.
    spooled: bool,
    /// For a run in the spool: where its unread bytes begin.
    start: u64,
    /// For a run in the spool: the number of its unread bytes.
    left: u64,
    /// The bytes of the spool that were read last.
    chunk: Vec<u8>,
    /// Where the current record ends in `chunk`.
    at: usize,
}

impl Cursor {
    fn spooled(part: usize, start: u64, left: u64) -> Self {
        Cursor { part, spooled: true, start, left, ..Cursor::default() }
    }

    /// The record to which `advance` advanced.
    fn current<'a>(&'a self, parts: &'a [Records]) -> &'a [u8] {
        let records = &parts[self.part];
        if self.spooled {
            &self.chunk[self.at - records.width..self.at]
        } else {
            records.record(self.order[self.next - 1])
        }
    }

    /// Advances to the next record and returns its prefix; `None` at the end.
    fn advance(&mut self, parts: &mut [Records]) -> Result<Option<Prefix>> {
        let width = parts[self.part].width;
        if self.spooled {
            if self.at == self.chunk.len() {
                if self.left == 0 {
                    return Ok(None);
                }
                self.read(&mut parts[self.part])?;
            }
            self.at += width;
        } else {
            if self.next == self.order.len() {
                return Ok(None);
            }
            self.next += 1;
        }
        let mut prefix = [0; PREFIX_BYTES];
        prefix.copy_from_slice(&self.current(parts)[..PREFIX_BYTES]);
        Ok(Some(prefix))
    }

    /// Reads the next bytes of the run from the spool, in whole records.
    fn read(&mut self, records: &mut Records) -> Result<()> {
        let whole_records = (READ_BYTES / records.width).max(1) * records.width;
        let size = self.left.min(whole_records as u64);
        self.chunk.resize(size as usize, 0);
        let file = records.file.as_mut().ok_or_else(|| unreadable(Error::other("no spool")))?;
        file.seek(SeekFrom::Start(self.start)).map_err(unreadable)?;
        file.read_exact(&mut self.chunk).map_err(unreadable)?;
        (self.start, self.left, self.at) = (self.start + size, self.left - size, 0);
        Ok(())
    }
}

/// Creates a file and removes its name. So no other process can open the file, and a crash leaves nothing behind.
fn create_unnamed(path: &PathBuf) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    remove_file(path)?;
    Ok(file)
}

fn unwritable(error: Error) -> Fault {
    Fault::new("locate_spool_failed", "", "a spool that can be written", error.kind().to_string())
}

fn unreadable(error: Error) -> Fault {
    Fault::new("locate_spool_failed", "", "a spool that can be read", error.kind().to_string())
}
