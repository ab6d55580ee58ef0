//! Errors of the kernel: a stable code, the column, the row, and what was expected and found.

use std::fmt;

pub type Result<T> = std::result::Result<T, Fault>;

/// Why a batch or file was refused. `row` is the row within the batch, if one row is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: &'static str,
    pub column: Box<str>,
    pub row: Option<usize>,
    /// The row group of a file, if one is at fault.
    pub group: Option<usize>,
    /// The claim of a file that does not hold. A claim is what a file says about its own values, such as a statistic.
    /// It is boxed to keep a fault small, because every `Result` of the kernel has room for a fault.
    pub claim: Option<Box<Claim>>,
    pub expected: String,
    pub got: String,
}

/// A claim of a Parquet file: its name in the format, and the page if it is about a single page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub page: Option<usize>,
}

impl Fault {
    pub fn new(code: &'static str, column: &str, expected: impl Into<String>, got: impl Into<String>) -> Self {
        let (expected, got) = (shorten(&expected.into()), shorten(&got.into()));
        let column = shorten(column).into_boxed_str();
        Fault { code, column, row: None, group: None, claim: None, expected, got }
    }

    /// Adds the row at fault, unless the fault already has one.
    pub fn at(mut self, row: usize) -> Self {
        self.row.get_or_insert(row);
        self
    }

    /// Adds the row group at fault, unless the fault already has one.
    pub fn in_group(mut self, group: usize) -> Self {
        self.group.get_or_insert(group);
        self
    }

    /// Adds the claim at fault. Without a page, the claim is about the whole column chunk.
    pub fn of_claim(mut self, name: &str, page: Option<usize>) -> Self {
        self.claim = Some(Box::new(Claim { name: name.to_owned(), page }));
        self
    }
}

/// Shortens text that a hostile input can make arbitrarily long, because it appears in messages and logs.
fn shorten(text: &str) -> String {
    text.chars().take(TEXT_MAX_CHARACTERS).collect()
}

const TEXT_MAX_CHARACTERS: usize = 400;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: column {:?}: expected {}, got {}", self.code, self.column, self.expected, self.got)
    }
}

impl std::error::Error for Fault {}
