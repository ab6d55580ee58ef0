//! The batches of a file, resolved to the schema; row group by row group, as others read them.

use crate::error::{Fault, Result};
use crate::indexed::{Indexed, Reading, others, woven};
use crate::parquet_file::{pages_unreadable, require_group_rows, require_no_more, require_rows, unreadable};
use crate::resolve::{Shape, resolved};
use crate::unclaimed::Unclaimed;
use arrow_array::{Array, StructArray};
use arrow_schema::{Fields, Schema};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use std::sync::Arc;

/// What is read of a file: its leaves, the columns of these, and how they become those of the schema.
pub struct Projected {
    pub mask: ProjectionMask,
    pub fields: Fields,
    pub shape: Arc<Shape>,
}

/// How a row group comes as it is stored: the types of all columns of the file, and those that come by their indices, by
/// their place among the columns that are read.
pub struct Stored {
    pub types: Fields,
    pub indexed: Vec<Indexed>,
}

pub struct Batches {
    data: Bytes,
    footer: ArrowReaderMetadata,
    batch_rows: usize,
    projected: Projected,
    /// For each row group, where not all columns come in the types of the footer.
    stored: Vec<Stored>,
    reader: Option<ParquetRecordBatchReader>,
    /// The columns of the row group that its reader does not decode.
    readings: Vec<Reading>,
    /// The row groups that were begun, and the rows seen of the last one.
    group: usize,
    seen: u64,
    rows: u64,
}

impl Batches {
    pub fn new(
        data: Bytes,
        footer: ArrowReaderMetadata,
        batch_rows: usize,
        projected: Projected,
        stored: Vec<Stored>,
    ) -> Result<Batches> {
        let (reader, readings) = (None, Vec::new());
        let mut made =
            Batches { data, footer, batch_rows, projected, stored, reader, readings, group: 0, seen: 0, rows: 0 };
        made.open_next()?;
        if made.reader.is_none() {
            require_rows(made.footer.metadata(), 0)?;
        }
        Ok(made)
    }

    fn open_next(&mut self) -> Result<()> {
        let group = self.group;
        if group >= self.footer.metadata().num_row_groups() {
            return Ok(());
        }
        self.readings = self.by_indices(group).unwrap_or_default();
        self.reader = Some(self.open(group)?);
        (self.group, self.seen) = (group + 1, 0);
        Ok(())
    }

    /// A reader of the columns of a row group that do not come by their indices.
    fn open(&self, group: usize) -> Result<ParquetRecordBatchReader> {
        let mut mask = self.projected.mask.clone();
        if !self.readings.is_empty() {
            mask.intersect(&others(self.footer.parquet_schema(), &self.stored[group].indexed));
        }
        let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(self.data.clone(), self.typed(group));
        let builder = builder.with_row_groups(vec![group]).with_projection(mask);
        builder.with_batch_size(self.batch_rows).build().map_err(unreadable)
    }

    /// The columns of a row group that come by their indices.
    fn by_indices(&self, group: usize) -> Option<Vec<Reading>> {
        let (columns, metadata) = (self.footer.parquet_schema(), self.footer.metadata().row_group(group));
        let readings = self.stored.get(group)?.indexed.iter().map(|each| {
            let pages = Unclaimed::new(&self.data, metadata, each.leaf, each.kind.primitive_width()?).ok()?;
            Some(Reading::unclaimed(each, columns.column(each.leaf).path().string(), pages))
        });
        readings.collect()
    }

    /// The footer with the types of a row group. Ones that the reader does not know how to give are no reason to refuse a
    /// file.
    fn typed(&self, group: usize) -> ArrowReaderMetadata {
        let types = self.stored.get(group).map(|stored| &stored.types);
        let Some(fields) = types.filter(|fields| *fields != self.footer.schema().fields()) else {
            return self.footer.clone();
        };
        let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields.clone())));
        let typed = ArrowReaderMetadata::try_new(self.footer.metadata().clone(), options);
        typed.unwrap_or_else(|_| self.footer.clone())
    }

    /// The next rows of the row group.
    fn next_rows(&mut self) -> Result<Option<StructArray>> {
        let Some(batch) = self.reader.as_mut().and_then(Iterator::next) else {
            self.readings.iter_mut().try_for_each(Reading::require_over)?;
            return Ok(None);
        };
        woven(&self.projected.fields, batch.map_err(pages_unreadable)?, &mut self.readings).map(Some)
    }

    /// The row group without indices, from the first row that was not given yet. A source may be written in any way that a
    /// decoder reads: only what that refuses is refused, in its words.
    fn decode_all(&mut self) -> Result<()> {
        self.readings.clear();
        let mut reader = self.open(self.group - 1)?;
        let mut left = self.seen;
        while left > 0 {
            let rows = match reader.next() {
                Some(batch) => batch.map_err(pages_unreadable)?.num_rows() as u64,
                None => 0,
            };
            // Both ways fill every batch but the last.
            left = left.checked_sub(rows).filter(|_| rows > 0).ok_or_else(|| {
                Fault::new("parquet_unreadable", "", "the rows that were read before", "others")
                    .in_group(self.group - 1)
            })?;
        }
        self.reader = Some(reader);
        Ok(())
    }

    /// The next row group, once this one is found to have its rows; after the last the whole file.
    fn close(&mut self) -> Result<()> {
        self.reader = None;
        require_group_rows(self.footer.metadata(), self.group - 1, self.seen)?;
        self.open_next()?;
        if self.reader.is_none() { require_rows(self.footer.metadata(), self.rows) } else { Ok(()) }
    }

    fn next_batch(&mut self) -> Result<Option<StructArray>> {
        while self.reader.is_some() {
            let found = match self.next_rows() {
                Err(_) if !self.readings.is_empty() => {
                    self.decode_all()?;
                    self.next_rows()?
                }
                found => found?,
            };
            let Some(batch) = found else {
                self.close()?;
                continue;
            };
            self.seen += batch.len() as u64;
            self.rows += batch.len() as u64;
            require_no_more(self.footer.metadata(), self.group - 1, self.seen)?;
            return resolved(&self.projected.shape, &batch).map(Some);
        }
        Ok(None)
    }
}

impl Iterator for Batches {
    type Item = Result<StructArray>;

    fn next(&mut self) -> Option<Result<StructArray>> {
        let found = self.next_batch();
        if found.is_err() {
            self.reader = None;
        }
        found.transpose()
    }
}
