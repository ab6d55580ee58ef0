//! Checks that the row counts of a footer are those of the pages, and translates errors of the decoder.

use crate::error::{Fault, Result};
use arrow_schema::ArrowError;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;

/// Refuses a file that declares more rows than the manifest. Without this limit a small file could cost any amount of
/// work, because a few bytes of a file can stand for any number of rows.
pub fn require_rows_max(footer: &ParquetMetaData, rows_max: Option<u64>) -> Result<()> {
    let groups = footer.row_groups().iter().map(|group| u64::try_from(group.num_rows()).unwrap_or(0));
    let rows = groups.fold(0, u64::saturating_add);
    match rows_max {
        Some(rows_max) if rows > rows_max => {
            let (expected, got) = (format!("{rows} rows, as the file declares"), format!("{rows_max} in the manifest"));
            Err(Fault::new("record_count_lies", "", expected, got))
        }
        _ => Ok(()),
    }
}

/// Refuses a row group as soon as more rows were decoded than the footer declares.
pub fn require_no_extra_rows(footer: &ParquetMetaData, group: usize, seen: u64) -> Result<()> {
    let claimed = u64::try_from(footer.row_group(group).num_rows()).unwrap_or(0);
    if seen > claimed { require_group_rows(footer, group, seen) } else { Ok(()) }
}

/// Requires that the pages of a row group hold as many rows as the footer declares.
pub fn require_group_rows(footer: &ParquetMetaData, group: usize, seen: u64) -> Result<()> {
    let claimed = footer.row_group(group).num_rows();
    if u64::try_from(claimed) == Ok(seen) {
        return Ok(());
    }
    let (expected, got) = (format!("{seen} rows, as the pages hold"), format!("{claimed} in a row group's footer"));
    Err(Fault::new("parquet_rows_lie", "", expected, got).in_group(group))
}

/// Requires that the pages hold as many rows as the footer declares for the file and for all row groups. So readers
/// that count by the footer get the same number as those that scan.
pub fn require_rows(footer: &ParquetMetaData, seen: u64) -> Result<()> {
    let groups: i64 = footer.row_groups().iter().map(|group| group.num_rows()).sum();
    let claimed = footer.file_metadata().num_rows();
    if u64::try_from(claimed) != Ok(seen) || groups != claimed {
        let expected = format!("{seen} rows, as the pages hold");
        return Err(Fault::new("parquet_rows_lie", "", expected, format!("{claimed} and {groups} in the footer")));
    }
    Ok(())
}

pub fn unreadable_file(error: ParquetError) -> Fault {
    Fault::new("parquet_unreadable", "", "a Parquet file", error.to_string())
}

pub fn unreadable_pages(error: ArrowError) -> Fault {
    Fault::new("parquet_unreadable", "", "readable pages", error.to_string())
}
