//! Rules for a file that is published with the producer's own footer (storage `open` and `sealed`).
//!
//! Each rule refuses what one engine reads differently from the others. With storage `copied` the Steward writes the
//! footer itself, consumers never see these fields, and none of the rules applies.

pub mod annotations;
pub mod arrow_schema;
pub mod footer;
pub mod names;
mod required_fields;
