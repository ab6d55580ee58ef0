//! The digester: hashes the rows of batches, and gives the row count and one sum of hashes per projection.

use crate::canonical::batch_column::{BatchColumn, DictionaryCache};
use crate::canonical::bind::bind_batch;
use crate::canonical::rows::{TILE_ROWS, Tile, add_rows};
use crate::canonical::schema::{Mode, Plan};
use crate::error::Result;
use crate::hash::element::{Hasher, Sum};
use crate::hash::sha256::HashPath;
use arrow_array::{Array, StructArray};
use std::time::{Duration, Instant};

pub struct Digester {
    plan: Plan,
    hashers: Vec<Hasher>,
    sums: Vec<Sum>,
    rows: u64,
    /// A reused buffer for the encoded rows that are hashed next.
    tile: Tile,
    /// The last dictionary of each column, encoded.
    cache: DictionaryCache,
    hash_time: Duration,
}

impl Digester {
    /// `keys` has one element key (the key that hashes rows) per projection, in the plan's order.
    pub fn new(plan: Plan, keys: &[[u8; 32]], path: HashPath) -> Self {
        let hashers: Vec<_> = keys.iter().map(|key| Hasher::new(plan.construction, key, path)).collect();
        let sums = vec![Sum::default(); keys.len()];
        Digester {
            plan,
            hashers,
            sums,
            rows: 0,
            tile: Tile::default(),
            cache: DictionaryCache::default(),
            hash_time: Duration::ZERO,
        }
    }

    /// Adds every row of the batch. After an error the sums are void.
    pub fn update(&mut self, batch: &StructArray) -> Result<()> {
        self.rows = add_rows(self.rows, batch.len())?;
        let columns = bind_with_cache(&self.plan, batch, &mut self.cache)?;
        let projections: Vec<Vec<&BatchColumn>> = self.plan.projections.iter().map(|p| pick(&columns, p)).collect();
        for first in (0..batch.len()).step_by(TILE_ROWS) {
            let end = (first + TILE_ROWS).min(batch.len());
            for (at, projection) in projections.iter().enumerate() {
                let mut next = first;
                // A tile takes fewer rows if they are large.
                while next < end {
                    next += self.tile.fill(projection, next, end - next)?;
                    let start = Instant::now();
                    self.hashers[at].add_to(&mut self.sums[at], self.tile.messages(), self.tile.lengths());
                    self.hash_time += start.elapsed();
                }
            }
        }
        Ok(())
    }

    /// Encodes the columns that no projection has, to check their types and values; the sums stay as they are. The
    /// rules of portable mode are for projected columns only, so these columns are encoded in stored mode.
    pub fn check_rest(&mut self, batch: &StructArray) -> Result<()> {
        let projected: Vec<usize> = self.plan.projections.iter().flatten().copied().collect();
        let rest: Vec<usize> = (0..self.plan.fields.len()).filter(|at| !projected.contains(at)).collect();
        if rest.is_empty() {
            return Ok(());
        }
        let plan = Plan { projections: vec![rest.clone()], mode: Mode::Stored, ..self.plan.clone() };
        let columns = bind_with_cache(&plan, batch, &mut self.cache)?;
        let picked = pick(&columns, &rest);
        let mut next = 0;
        while next < batch.len() {
            next += self.tile.fill(&picked, next, batch.len() - next)?;
        }
        Ok(())
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn sums(&self) -> &[Sum] {
        &self.sums
    }

    /// The time that all updates spent hashing.
    pub fn hash_time(&self) -> Duration {
        self.hash_time
    }
}

/// The canonical rows of one projection, encoded as a digester does.
pub fn encode(plan: &Plan, projection: usize, batch: &StructArray) -> Result<Vec<Vec<u8>>> {
    let columns = bind(plan, batch)?;
    let picked = pick(&columns, &plan.projections[projection]);
    let (mut tile, mut rows) = (Tile::default(), Vec::new());
    while rows.len() < batch.len() {
        let filled = tile.fill(&picked, rows.len(), batch.len() - rows.len())?;
        rows.extend((0..filled).map(|row| tile.row(row).to_vec()));
    }
    Ok(rows)
}

/// Binds the batch's columns to the plan's fields, with the encoded cells of their dictionaries from the cache. A field
/// that no projection has is `None`.
fn bind_with_cache(plan: &Plan, batch: &StructArray, cache: &mut DictionaryCache) -> Result<Vec<Option<BatchColumn>>> {
    let bound = bind_batch(plan, batch)?.into_iter().zip(&plan.fields).enumerate();
    let batch_columns = bound.map(|(at, (column, field))| {
        let column = column?;
        let array = batch.column_by_name(&field.name).expect("the batch has every bound column");
        Some(cache.batch_column(at, column, array))
    });
    Ok(batch_columns.collect())
}

/// Binds the batch's columns to the plan's fields, without a cache.
pub(crate) fn bind(plan: &Plan, batch: &StructArray) -> Result<Vec<Option<BatchColumn>>> {
    Ok(bind_batch(plan, batch)?.into_iter().map(|column| column.map(BatchColumn::new)).collect())
}

/// The bound columns at these positions of the plan's fields.
pub(crate) fn pick<'a>(columns: &'a [Option<BatchColumn>], positions: &[usize]) -> Vec<&'a BatchColumn> {
    positions.iter().filter_map(|position| columns[*position].as_ref()).collect()
}
