//! Decodes rarely used encodings to plain values, by the decoder of the `parquet` crate.

use bytes::Bytes;
use parquet::basic::{Encoding, Type as Physical};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{
    AsBytes, BoolType, ByteArrayType, DataType, DoubleType, FixedLenByteArrayType, FloatType, Int32Type, Int64Type,
    Int96Type,
};
use parquet::errors::Result as ParquetResult;
use parquet::schema::types::{ColumnDescPtr, ColumnDescriptor};
use std::sync::Arc;

/// The plain bytes of `count` values. Returns `None` if they cannot be decoded.
pub fn decode_to_plain(column: &ColumnDescPtr, data: Bytes, encoding: Encoding, count: u64) -> Option<Bytes> {
    let count = u32::try_from(count).ok()?;
    if count == 0 {
        return Some(Bytes::new());
    }
    // The levels were read before, so the values are decoded as a page of a column without levels.
    let without_levels = Arc::new(ColumnDescriptor::new(column.self_type_ptr(), 0, 0, column.path().clone()));
    let page = Page::DataPageV2 {
        buf: data,
        num_values: count,
        encoding,
        num_nulls: 0,
        num_rows: count,
        def_levels_byte_len: 0,
        rep_levels_byte_len: 0,
        is_compressed: false,
        statistics: None,
    };
    let count = count as usize;
    match column.physical_type() {
        Physical::BOOLEAN => {
            let flags = decode_values::<BoolType>(without_levels, page, count)?;
            let mut packed = vec![0_u8; flags.len().div_ceil(8)];
            flags.iter().enumerate().filter(|(_, flag)| **flag).for_each(|(at, _)| packed[at / 8] |= 1 << (at % 8));
            Some(packed.into())
        }
        Physical::INT32 => to_fixed_bytes(&decode_values::<Int32Type>(without_levels, page, count)?),
        Physical::INT64 => to_fixed_bytes(&decode_values::<Int64Type>(without_levels, page, count)?),
        Physical::INT96 => to_fixed_bytes(&decode_values::<Int96Type>(without_levels, page, count)?),
        Physical::FLOAT => to_fixed_bytes(&decode_values::<FloatType>(without_levels, page, count)?),
        Physical::DOUBLE => to_fixed_bytes(&decode_values::<DoubleType>(without_levels, page, count)?),
        Physical::FIXED_LEN_BYTE_ARRAY => {
            to_fixed_bytes(&decode_values::<FixedLenByteArrayType>(without_levels, page, count)?)
        }
        Physical::BYTE_ARRAY => {
            let mut plain = Vec::new();
            for value in decode_values::<ByteArrayType>(without_levels, page, count)? {
                plain.extend(u32::try_from(value.len()).ok()?.to_le_bytes());
                plain.extend(value.data());
            }
            Some(plain.into())
        }
    }
}

/// Concatenates values of a fixed length.
fn to_fixed_bytes<T: AsBytes>(values: &[T]) -> Option<Bytes> {
    let mut plain = Vec::new();
    values.iter().for_each(|value| plain.extend(value.as_bytes()));
    Some(plain.into())
}

fn decode_values<T: DataType>(column: ColumnDescPtr, page: Page, count: usize) -> Option<Vec<T::T>> {
    let mut reader = ColumnReaderImpl::<T>::new(column, Box::new(OnePage(Some(page))));
    let mut values = Vec::new();
    let (_, read, _) = reader.read_records(count, None, None, &mut values).ok()?;
    (read == count && values.len() == count).then_some(values)
}

/// A reader of a single page.
struct OnePage(Option<Page>);

impl Iterator for OnePage {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for OnePage {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        Ok(self.0.take())
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        Ok(None)
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.0 = None;
        Ok(())
    }
}
