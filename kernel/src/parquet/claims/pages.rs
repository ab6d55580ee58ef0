//! Gives the pages of a row group to the decoder, and measures each page on the way.

use crate::parquet::claims::measure::ChunkMeasure;
use crate::parquet::format::wide_deltas::with_plain_integers;
use bytes::Bytes;
use parquet::arrow::arrow_reader::RowGroups;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::Result;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use std::sync::{Arc, Mutex, PoisonError};

/// The measure of one column chunk, shared by the decoder's page reader and the comparison.
#[derive(Clone)]
pub struct SharedMeasure(Arc<Mutex<ChunkMeasure>>);

impl SharedMeasure {
    pub fn new(chunk: ChunkMeasure) -> SharedMeasure {
        SharedMeasure(Arc::new(Mutex::new(chunk)))
    }

    /// Calls `act` with the measure, under its lock.
    pub fn with<T>(&self, act: impl FnOnce(&mut ChunkMeasure) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A row group whose pages are measured.
pub struct MeasuredRowGroup<'a> {
    pub data: &'a Bytes,
    pub metadata: &'a ParquetMetaData,
    pub group: usize,
    pub chunks: &'a [SharedMeasure],
}

impl MeasuredRowGroup<'_> {
    /// The pages of one leaf.
    pub fn pages(&self, at: usize) -> Result<MeasuredPages> {
        let column = self.metadata.row_group(self.group).column(at);
        let pages = SerializedPageReader::new(Arc::new(self.data.clone()), column, self.num_rows(), None)?;
        Ok(MeasuredPages { pages, chunk: self.chunks[at].clone() })
    }
}

impl RowGroups for MeasuredRowGroup<'_> {
    fn num_rows(&self) -> usize {
        usize::try_from(self.metadata.row_group(self.group).num_rows()).unwrap_or(0)
    }

    fn column_chunks(&self, at: usize) -> Result<Box<dyn PageIterator>> {
        Ok(Box::new(OneChunk(Some(Box::new(self.pages(at)?)))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.metadata.row_group(self.group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        self.metadata
    }
}

/// An iterator over the pages of one column chunk.
struct OneChunk(Option<Box<dyn PageReader>>);

impl Iterator for OneChunk {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(Ok)
    }
}

impl PageIterator for OneChunk {}

/// The pages of a column chunk, each measured when it is read.
pub struct MeasuredPages {
    pages: SerializedPageReader<Bytes>,
    chunk: SharedMeasure,
}

impl Iterator for MeasuredPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for MeasuredPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let Some(page) = self.pages.get_next_page()? else { return Ok(None) };
        let page = self.chunk.with(|chunk| {
            let page = with_plain_integers(page, &chunk.column);
            chunk.add_page(&page);
            page
        });
        Ok(Some(page))
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}
