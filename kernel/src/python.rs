//! The Python module `pvdm_kernel`; its types are in `pvdm_kernel.pyi`.

use crate::canonical::schema::Plan;
use crate::digest::{self, Digester};
use crate::error::Fault;
use crate::hash::sha256::HashPath;
use crate::locate::passes::{Sieve, Suspects};
use crate::locate::place::Place;
use crate::locate::spool::{Records, Spool};
use crate::parquet::batches::Batches;
use crate::parquet::file::ParquetFile;
use crate::parquet::rewrite::recipe;
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_data::ArrayData;
use arrow_pyarrow::{FromPyArrowUnchecked, ToPyArrow};
use bytes::Bytes;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use zeroize::Zeroizing;

/// 32 MiB: glibc's allocator never raises its dynamic mmap threshold above this size (`learn_large_blocks`).
const LEARNED_MAX_BYTES: usize = 33_554_432;

// claim: what a file says about its own values, such as a statistic (not the claim of a workload).
pyo3::create_exception!(
    pvdm_kernel,
    KernelError,
    PyException,
    "code, column, row, expected, got, row group, claim, page"
);

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> PyErr {
        let Fault { code, column, row, expected, got, group, claim } = fault;
        let (claim, page) = claim.map_or((None, None), |claim| (Some(claim.name), claim.page));
        KernelError::new_err((code, column.into_string(), row, expected, got, group, claim, page))
    }
}

/// Imports a record batch through the Arrow C data interface, without copying values.
#[allow(unsafe_code)]
fn import_batch(batch: &Bound<'_, PyAny>) -> PyResult<StructArray> {
    // SAFETY: the unchecked import infers the sizes of buffers from the last offsets. So the caller must have checked
    // the batch with `check_batch` of `pvdm.digest.arrow`. That function calls pyarrow's `validate`, which checks these
    // sizes, and then checks what `validate` does not: offsets of empty arrays, children of fixed-size lists, and
    // depth. Afterwards `canonical::bind` and `canonical::column` read values only through slices and checked ranges.
    // The checked import is not used because it validates every value, which would cost as much as a digest, and
    // refuses invalid bytes under a null, which are never read.
    let data = unsafe { ArrayData::from_pyarrow_bound_unchecked(batch)? };
    match data.data_type() {
        arrow_schema::DataType::Struct(_) => Ok(StructArray::from(data)),
        other => Err(PyValueError::new_err(format!("expected a record batch, got {other}"))),
    }
}

/// Finds a SHA-256 implementation by name; `auto` is the fastest one. Refuses a name that this processor lacks.
fn find_hash_path(name: &str) -> PyResult<HashPath> {
    let available = HashPath::available();
    match name {
        "auto" => Ok(available[0]),
        _ => available
            .into_iter()
            .find(|path| path.name() == name)
            .ok_or_else(|| PyValueError::new_err(format!("this processor has no hash path {name:?}"))),
    }
}

#[pyclass(name = "Digester", module = "pvdm_kernel")]
struct PyDigester(Digester);

#[pymethods]
impl PyDigester {
    #[new]
    #[pyo3(signature = (plan, keys, hash_path = "auto"))]
    fn new(plan: &str, keys: Vec<Vec<u8>>, hash_path: &str) -> PyResult<Self> {
        // `Zeroizing` wipes the keys when they are dropped, also if an argument is refused.
        let keys: Vec<_> = keys.into_iter().map(Zeroizing::new).collect();
        let plan = Plan::parse(plan)?;
        let mut element_keys = Zeroizing::new(Vec::with_capacity(keys.len()));
        for key in &keys {
            let element_key = <[u8; 32]>::try_from(&key[..]);
            element_keys.push(element_key.map_err(|_| PyValueError::new_err("a key has 32 bytes"))?);
        }
        if element_keys.len() != plan.projections.len() {
            return Err(PyValueError::new_err("one key per projection is needed"));
        }
        Ok(PyDigester(Digester::new(plan, &element_keys, find_hash_path(hash_path)?)))
    }

    fn update(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<()> {
        let batch = import_batch(batch)?;
        Ok(py.detach(|| self.0.update(&batch))?)
    }

    fn totals<'py>(&self, py: Python<'py>) -> Vec<(u64, Bound<'py, PyBytes>)> {
        self.0.sums().iter().map(|sum| (self.0.rows(), PyBytes::new(py, &sum.bytes()))).collect()
    }

    #[getter]
    fn hash_seconds(&self) -> f64 {
        self.0.hash_time().as_secs_f64()
    }
}

/// A Parquet file in memory, resolved to a schema by field ids.
#[pyclass(name = "ParquetFile", module = "pvdm_kernel", frozen)]
struct PyParquetFile(ParquetFile);

#[pymethods]
impl PyParquetFile {
    #[new]
    fn new(py: Python<'_>, data: PyBackedBytes, request: &str) -> PyResult<Self> {
        Ok(PyParquetFile(py.detach(|| ParquetFile::open(Bytes::from_owner(data), request))?))
    }

    /// Reads every row into the digester; returns the facts (counts and bounds for a manifest entry) as JSON.
    fn read(&self, py: Python<'_>, digester: &mut PyDigester) -> PyResult<String> {
        Ok(py.detach(|| self.0.read(&mut digester.0))?.to_string())
    }

    /// Reads every row into the digester; returns the facts as JSON, and the recipe from which `splice` builds the file
    /// to publish.
    fn read_and_rewrite<'py>(
        &self,
        py: Python<'py>,
        digester: &mut PyDigester,
    ) -> PyResult<(String, Bound<'py, PyBytes>)> {
        let (facts, rewritten) = py.detach(|| self.0.read_and_rewrite(&mut digester.0))?;
        Ok((facts.to_string(), PyBytes::new(py, &rewritten.recipe)))
    }

    fn batches(&self) -> PyResult<PyBatches> {
        Ok(PyBatches(Mutex::new(self.0.batches()?)))
    }
}

/// The first pass of locating wrong rows: finds the hash buckets in which intended and staged rows differ.
#[pyclass(name = "Sieve", module = "pvdm_kernel")]
struct PySieve(Sieve);

#[pymethods]
impl PySieve {
    #[new]
    fn new(plan: &str, key: [u8; 32], bits: u32) -> PyResult<Self> {
        Ok(PySieve(Sieve::new(Plan::parse(plan)?, &key, bits)?))
    }

    fn add(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>, staged: bool) -> PyResult<()> {
        let batch = import_batch(batch)?;
        Ok(py.detach(|| self.0.add(&batch, staged))?)
    }

    /// Adds every row of a staged file.
    fn read(&mut self, py: Python<'_>, file: &PyParquetFile) -> PyResult<()> {
        Ok(py.detach(|| file.0.all_batches()?.try_for_each(|batch| self.0.add(&batch?, true)))?)
    }

    fn merge(&mut self, py: Python<'_>, other: &PySieve) -> PyResult<()> {
        Ok(py.detach(|| self.0.merge(&other.0))?)
    }

    /// Returns the number of buckets that differ, and the number of rows that both sides have in these buckets.
    fn count_differing(&self) -> (u64, u64) {
        self.0.count_differing()
    }

    /// Creates a collector for the rows of the buckets that differ. With `hash_fields` it also hashes each field.
    fn suspects(&self, hash_fields: bool, memory_bytes: usize, spool: PathBuf, limit_bytes: u64) -> PySuspects {
        let spool = Spool { path: spool, limit_bytes };
        PySuspects(Some(self.0.suspects(hash_fields, |field_count| Records::new(field_count, memory_bytes, spool))))
    }
}

/// The second pass of locating wrong rows: collects the rows of the buckets that differ. The inner value is `None`
/// after the collector was absorbed or tallied.
#[pyclass(name = "Suspects", module = "pvdm_kernel")]
struct PySuspects(Option<Suspects>);

impl PySuspects {
    fn get(&mut self) -> PyResult<&mut Suspects> {
        self.0.as_mut().ok_or_else(already_used)
    }

    fn take(&mut self) -> PyResult<Suspects> {
        self.0.take().ok_or_else(already_used)
    }
}

#[pymethods]
impl PySuspects {
    fn add(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>, file: u32, first_row: u64) -> PyResult<()> {
        let (batch, suspects) = (import_batch(batch)?, self.get()?);
        Ok(py.detach(|| suspects.add(&batch, Place { staged: false, file, row: first_row }))?)
    }

    /// Adds every row of a staged file. The report names the file by `number`.
    fn read(&mut self, py: Python<'_>, file: &PyParquetFile, number: u32) -> PyResult<()> {
        let suspects = self.get()?;
        Ok(py.detach(|| {
            let mut row = 0;
            file.0.all_batches()?.try_for_each(|batch| {
                let batch = batch?;
                suspects.add(&batch, Place { staged: true, file: number, row })?;
                row += batch.len() as u64;
                Ok::<(), Fault>(())
            })
        })?)
    }

    /// Takes over the rows of a collector that another thread filled. That collector cannot be used afterwards.
    fn absorb(&mut self, other: &mut PySuspects) -> PyResult<()> {
        let other = other.take()?;
        Ok(self.get()?.absorb(other)?)
    }

    #[getter]
    fn is_spooled(&mut self) -> PyResult<bool> {
        Ok(self.get()?.is_spooled())
    }

    /// Reports the differences as JSON.
    fn tally(&mut self, py: Python<'_>, samples: usize) -> PyResult<String> {
        let suspects = self.take()?;
        Ok(py.detach(|| suspects.tally(samples))?.to_string())
    }
}

fn already_used() -> PyErr {
    PyValueError::new_err("the suspects were already absorbed or tallied")
}

/// The iterator that `ParquetFile.batches` returns.
#[pyclass(name = "Batches", module = "pvdm_kernel", frozen)]
struct PyBatches(Mutex<Batches>);

#[pymethods]
impl PyBatches {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let next = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).next());
        match next {
            None => Ok(None),
            Some(batch) => Ok(Some(RecordBatch::from(&batch?).to_pyarrow(py)?)),
        }
    }
}

/// The canonical rows of one projection. `projection` is its position in the plan.
#[pyfunction]
fn encode<'py>(
    py: Python<'py>,
    plan: &str,
    projection: usize,
    batch: &Bound<'py, PyAny>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let (plan, batch) = (Plan::parse(plan)?, import_batch(batch)?);
    if projection >= plan.projections.len() {
        return Err(PyValueError::new_err("the plan has no such projection"));
    }
    let rows = py.detach(|| digest::encode(&plan, projection, &batch))?;
    Ok(rows.iter().map(|row| PyBytes::new(py, row)).collect())
}

/// Builds the file to publish from the staged file and the recipe of `read_and_rewrite`.
#[pyfunction]
fn splice<'py>(py: Python<'py>, recipe: PyBackedBytes, staged: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
    let size = recipe::spliced_size(&recipe, &staged)?;
    PyBytes::new_with(py, size, |out| Ok(recipe::splice(&recipe, &staged, out)?))
}

#[pyfunction]
fn hash_paths() -> Vec<&'static str> {
    HashPath::available().into_iter().map(HashPath::name).collect()
}

/// Frees one block just below `LEARNED_MAX_BYTES` at import. glibc then sets its dynamic mmap threshold to that size.
/// Freed blocks up to that size are then reused for the next batch, instead of being returned to the system. If
/// the environment sets a fixed threshold (`MALLOC_MMAP_THRESHOLD_`), glibc never raises it.
fn learn_large_blocks() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LEARNED_MAX_BYTES - 65_536)));
}

#[pymodule]
fn pvdm_kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    learn_large_blocks();
    module.add_class::<PyDigester>()?;
    module.add_class::<PyParquetFile>()?;
    module.add_class::<PySieve>()?;
    module.add_class::<PySuspects>()?;
    module.add_function(wrap_pyfunction!(encode, module)?)?;
    module.add_function(wrap_pyfunction!(hash_paths, module)?)?;
    module.add_function(wrap_pyfunction!(splice, module)?)?;
    module.add("KernelError", module.py().get_type::<KernelError>())?;
    module.add("PanicException", module.py().get_type::<pyo3::panic::PanicException>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
