//! Reads a column as dictionary indices, from the file of a source (from which intended rows are read). The claims of
//! its pages are not checked here, and unusual pages are left to the decoder.

use crate::parquet::claims::row_indices::RowIndices;
use crate::parquet::format::pages::split_page;
use crate::parquet::format::runs::each_block;
use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::Result;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use std::sync::Arc;

/// The pages of a flat column chunk, in which each row has at most one value.
pub struct SourceIndices {
    pages: SerializedPageReader<Bytes>,
    /// The maximum definition level, zero or one.
    level_max: i16,
    /// The length of a value in bytes.
    width: usize,
    /// The values of the dictionary, concatenated.
    dictionary: Option<Bytes>,
    /// The rows that were read and not yet taken.
    pub rows: RowIndices,
}

impl SourceIndices {
    pub fn new(data: &Bytes, group: &RowGroupMetaData, leaf: usize, width: usize) -> Result<SourceIndices> {
        let (column, rows) = (group.column(leaf), usize::try_from(group.num_rows()).unwrap_or(0));
        let pages = SerializedPageReader::new(Arc::new(data.clone()), column, rows, None)?;
        let level_max = column.column_descr().max_def_level();
        Ok(SourceIndices { pages, level_max, width, dictionary: None, rows: RowIndices::default() })
    }

    /// Reads the next page, and returns whether there was one. Returns `None` if the decoder has to read the column.
    pub fn next_page(&mut self) -> Option<bool> {
        match self.pages.get_next_page().ok()? {
            Some(page) => self.read_page(&page).map(|()| true),
            None => Some(false),
        }
    }

    /// The values of the dictionary, concatenated.
    pub fn dictionary(&self) -> &[u8] {
        self.dictionary.as_deref().unwrap_or_default()
    }

    /// The number of values of the dictionary.
    pub fn value_count(&self) -> usize {
        self.dictionary().len() / self.width
    }

    /// Returns `None` if the decoder has to read the page.
    #[allow(deprecated)]
    fn read_page(&mut self, page: &Page) -> Option<()> {
        match page {
            Page::DictionaryPage { buf, num_values, encoding, .. } => {
                let is_known = matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY);
                let size = usize::try_from(*num_values).ok()?.checked_mul(self.width)?;
                if !is_known || self.dictionary.is_some() || buf.len() != size {
                    return None;
                }
                self.dictionary = Some(buf.clone());
                Some(())
            }
            Page::DataPage { def_level_encoding, .. } if self.level_max > 0 && *def_level_encoding != Encoding::RLE => {
                None
            }
            _ => self.read_data_page(page),
        }
    }

    #[allow(deprecated)]
    fn read_data_page(&mut self, page: &Page) -> Option<()> {
        let is_known = matches!(page.encoding(), Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY);
        if !is_known || self.dictionary.is_none() {
            return None;
        }
        let entries = u64::from(page.num_values());
        let (_, definition, data) = split_page(page, 0, self.level_max)?;
        let present = if self.level_max > 0 { count_present(definition, entries)? } else { entries };
        if let Page::DataPageV2 { num_nulls, .. } = page
            && u64::from(*num_nulls) != entries - present
        {
            return None;
        }
        // The first byte is the bit width of the indices, even if there is no value.
        let (width, indices) = data.split_first()?;
        if *width > 32 {
            return None;
        }
        self.rows.start_page();
        let before = self.rows.len();
        each_block(indices, (*width).into(), present, |indices, times| {
            self.rows.add(indices, times);
            Some(())
        })?;
        self.rows.insert_nulls(before, definition, entries)
    }
}

/// How many of the definition levels are one. Returns `None` for levels other than zero and one.
fn count_present(definition: &[u8], entries: u64) -> Option<u64> {
    let mut found = 0;
    each_block(definition, 1, entries, |levels, times| {
        let ones: u64 = levels.iter().map(|level| u64::from(*level)).sum();
        found += ones * times;
        levels.iter().all(|level| *level < 2).then_some(())
    })?;
    Some(found)
}
