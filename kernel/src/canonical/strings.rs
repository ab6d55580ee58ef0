//! Checks strings. Both modes require well-formed UTF-8. Portable mode also requires assigned code points, and converts
//! strings to NFC.

use crate::canonical::unicode14::UNASSIGNED;
use std::borrow::Cow;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Why a string is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotUtf8,
    Unassigned(char),
}

/// Refuses bytes that are not UTF-8.
pub fn to_utf8(bytes: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(bytes).map_err(|_| Refusal::NotUtf8)
}

/// Converts to the portable form, NFC. Refuses code points that are not assigned in Unicode 14.0.0.
pub fn to_portable(text: &str) -> Result<Cow<'_, str>, Refusal> {
    if text.is_ascii() {
        return Ok(Cow::Borrowed(text));
    }
    if let Some(unassigned) = text.chars().find(|c| is_unassigned(*c)) {
        return Err(Refusal::Unassigned(unassigned));
    }
    Ok(match is_nfc_quick(text.chars()) {
        IsNormalized::Yes => Cow::Borrowed(text),
        IsNormalized::No | IsNormalized::Maybe => Cow::Owned(text.nfc().collect()),
    })
}

fn is_unassigned(character: char) -> bool {
    let code = u32::from(character);
    let started = UNASSIGNED.partition_point(|(first, _)| *first <= code);
    UNASSIGNED[..started].last().is_some_and(|(_, last)| code <= *last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_strings_are_composed() {
        assert_eq!(to_portable("e\u{301}").unwrap(), "\u{e9}");
        assert_eq!(to_portable("\u{1100}\u{1161}").unwrap(), "\u{ac00}");
        assert_eq!(to_portable("plain").unwrap(), "plain");
    }

    #[test]
    fn unassigned_code_points_are_refused() {
        assert_eq!(to_portable("\u{378}"), Err(Refusal::Unassigned('\u{378}')));
        // Assigned in Unicode 15.0, hence unassigned in 14.0.
        assert_eq!(to_portable("\u{1f6dc}"), Err(Refusal::Unassigned('\u{1f6dc}')));
        assert!(to_portable("\u{1f980}").is_ok());
    }

    #[test]
    fn surrogates_and_overlong_forms_are_refused() {
        for bytes in [&[0xed, 0xa0, 0x80][..], &[0xc0, 0x80], &[0xf4, 0x90, 0x80, 0x80], &[0xc3]] {
            assert_eq!(to_utf8(bytes), Err(Refusal::NotUtf8));
        }
    }
}
