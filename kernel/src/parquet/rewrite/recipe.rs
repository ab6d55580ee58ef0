//! The recipe of a published file: bytes that the Steward writes, and page bodies that are copied from the staged file.

use crate::error::{Fault, Result};
use std::ops::Range;

/// The bytes of a number in a recipe.
const NUMBER_BYTES: usize = 8;

/// A list of parts. A part is some bytes that the Steward writes, followed by a range of the staged file.
#[derive(Default)]
pub struct Recipe {
    /// The written bytes of all parts.
    written: Vec<u8>,
    parts: Vec<Part>,
    /// The bytes of the published file so far.
    size: u64,
}

struct Part {
    /// The number of written bytes.
    written: usize,
    /// The range of the staged file.
    copied: Range<usize>,
}

impl Recipe {
    /// How many bytes the published file has so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Adds what `write` appends, followed by the range `copied` of the staged file. The range 0..0 copies nothing.
    pub fn add(&mut self, copied: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.written.len();
        write(&mut self.written);
        let written = self.written.len() - before;
        self.size += (written + copied.len()) as u64;
        self.parts.push(Part { written, copied });
    }

    /// The bytes that `splice` reads. Each part has three numbers (the count of written bytes, the start of the range
    /// and its length), followed by the written bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.written.len() + 3 * NUMBER_BYTES * self.parts.len());
        let mut at = 0;
        for part in &self.parts {
            for number in [part.written, part.copied.start, part.copied.len()] {
                out.extend_from_slice(&(number as u64).to_le_bytes());
            }
            out.extend_from_slice(&self.written[at..at + part.written]);
            at += part.written;
        }
        out
    }
}

/// Parses a recipe for a staged file of `staged_size` bytes into written bytes and copied ranges. Refuses ranges
/// outside the staged file, and more copied bytes in total than it has. So the published file is never larger than
/// recipe and staged file together.
fn parse_parts(mut recipe: &[u8], staged_size: usize) -> Result<Vec<(&[u8], Range<usize>)>> {
    let mut found = Vec::new();
    let mut left = staged_size;
    while !recipe.is_empty() {
        let part = parse_part(recipe, staged_size).filter(|(_, copied, _)| copied.len() <= left);
        let (written, copied, rest) =
            part.ok_or_else(|| Fault::new("recipe_invalid", "", "parts inside the staged file", "different ones"))?;
        left -= copied.len();
        found.push((written, copied));
        recipe = rest;
    }
    Ok(found)
}

/// Returns the written bytes and the copied range of the first part, and the rest of the recipe.
fn parse_part(recipe: &[u8], staged_size: usize) -> Option<(&[u8], Range<usize>, &[u8])> {
    let number = |at: usize| {
        let bytes = recipe.get(at * NUMBER_BYTES..(at + 1) * NUMBER_BYTES)?;
        usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let (written, start, length) = (number(0)?, number(1)?, number(2)?);
    let rest = recipe.get(3 * NUMBER_BYTES..)?;
    let end = start.checked_add(length).filter(|end| *end <= staged_size)?;
    Some((rest.get(..written)?, start..end, rest.get(written..)?))
}

/// The size of the file that `splice` builds.
pub fn spliced_size(recipe: &[u8], staged: &[u8]) -> Result<usize> {
    let sizes = parse_parts(recipe, staged.len())?.into_iter().map(|(written, copied)| written.len() + copied.len());
    Ok(sizes.sum())
}

/// Writes the published file into `out`, which has exactly its size.
pub fn splice(recipe: &[u8], staged: &[u8], mut out: &mut [u8]) -> Result<()> {
    for (written, copied) in parse_parts(recipe, staged.len())? {
        for bytes in [written, &staged[copied]] {
            let (head, rest) = out.split_at_mut(bytes.len());
            head.copy_from_slice(bytes);
            out = rest;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_gives_written_and_copied_bytes_in_order() {
        let mut recipe = Recipe::default();
        recipe.add(2..4, |out| out.extend(b"AB"));
        recipe.add(0..1, |out| out.extend(b"C"));
        recipe.add(0..0, |out| out.extend(b"end"));
        let bytes = recipe.to_bytes();
        let mut out = vec![0; spliced_size(&bytes, b"0123").unwrap()];
        splice(&bytes, b"0123", &mut out).unwrap();
        assert_eq!((&out[..], recipe.size()), (&b"AB23C0end"[..], 9));
    }

    #[test]
    fn a_recipe_for_another_file_is_refused() {
        let mut recipe = Recipe::default();
        recipe.add(2..4, |out| out.extend(b"AB"));
        let bytes = recipe.to_bytes();
        assert_eq!(spliced_size(&bytes, b"012").unwrap_err().code, "recipe_invalid");
        recipe.add(0..3, |_| ());
        assert_eq!(spliced_size(&recipe.to_bytes(), b"0123").unwrap_err().code, "recipe_invalid");
        for cut in 1..bytes.len() {
            assert!(spliced_size(&bytes[..cut], b"0123").is_err());
        }
    }
}
