//! Keyed element hashes and their multiset sum (spec/digest.md section 3).

pub mod element;
pub mod sha256;
