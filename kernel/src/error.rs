//! Errors of the kernel: a stable code of spec/canonical.md, the column, the row and what was wrong.

use std::fmt;

pub type Result<T> = std::result::Result<T, Fault>;

/// Why a batch was refused. `row` is the row within the batch, where one row is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: &'static str,
    pub column: Box<str>,
    pub row: Option<usize>,
    /// The row group of a file, where one is at fault.
    pub group: Option<usize>,
    /// In a box, for every result of the kernel is as large as a fault.
    pub claim: Option<Box<Claim>>,
    pub expected: String,
    pub got: String,
}

/// What a file claims and does not hold, by its name in the format, and the page where it stands for one.
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

    /// The same fault, of this claim, which stands for one page or for all of a column's.
    pub fn of_claim(mut self, name: &str, page: Option<usize>) -> Self {
        self.claim = Some(Box::new(Claim { name: name.to_owned(), page }));
        self
    }
}

/// What a hostile input can make as long as it likes is cut: it ends up in messages and logs.
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
