//! Errors of the kernel: a stable code of spec/canonical.md, the column, the row and what was wrong.

use std::fmt;

pub type Result<T> = std::result::Result<T, Fault>;

/// Why a batch was refused. `row` is the row within the batch, where one row is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: &'static str,
    pub column: String,
    pub row: Option<usize>,
    /// The row group of a file, where one is at fault.
    pub group: Option<usize>,
    pub expected: String,
    pub got: String,
}

impl Fault {
    pub fn new(code: &'static str, column: &str, expected: impl Into<String>, got: impl Into<String>) -> Self {
        let (expected, got) = (shortened(&expected.into()), shortened(&got.into()));
        Fault { code, column: shortened(column), row: None, group: None, expected, got }
    }

    /// The same fault, met at this row.
    pub fn at(mut self, row: usize) -> Self {
        self.row.get_or_insert(row);
        self
    }

    /// The same fault, met in this row group of a file.
    pub fn in_group(mut self, group: usize) -> Self {
        self.group.get_or_insert(group);
        self
    }
}

/// What a hostile input can make as long as it likes is cut: it ends up in messages and logs.
fn shortened(text: &str) -> String {
    text.chars().take(TEXT_MAX_CHARACTERS).collect()
}

const TEXT_MAX_CHARACTERS: usize = 400;

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: column {:?}: expected {}, got {}", self.code, self.column, self.expected, self.got)
    }
}

impl std::error::Error for Fault {}
