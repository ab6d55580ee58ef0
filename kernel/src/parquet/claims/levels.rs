//! Checks that the leaves of one struct, list or map agree on its nulls, its empty lists and its elements. Each leaf
//! stores these in its own repetition and definition levels, and readers take them from any one of the leaves.

use crate::error::{Fault, Result};
use crate::parquet::format::runs::{BLOCK, Run, bit_width, next_block, next_run};
use parquet::basic::Repetition;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor, Type};

/// This many bytes are collected before they are hashed.
const HASH_BUFFER_BYTES: usize = 4_096;

/// A pair of numbers, one for repetition levels and one for definition levels. It holds the levels of an entry, the
/// maximum levels of a schema node, or the bit widths of the encoded levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LevelPair {
    repetition: u32,
    definition: u32,
}

/// The levels of one leaf, page by page.
#[derive(Debug)]
pub struct NestedLevels {
    /// The bit widths of the encoded levels.
    width: LevelPair,
    /// For each list around the leaf, from the outermost on: the least definition level at which it has an element.
    lists: Vec<u32>,
    /// The levels of the group that this leaf shares with the previous leaf.
    before: Option<GroupLevels>,
    /// The levels of the group that this leaf shares with the next leaf.
    after: Option<GroupLevels>,
    /// The definition level of the previous entry.
    last: Option<u32>,
}

/// What a leaf stores about one group of the schema, entry by entry, as a hash.
#[derive(Debug)]
struct GroupLevels {
    /// The path of the group.
    group: String,
    /// The maximum levels of the group.
    depth: LevelPair,
    /// The levels of the last entry.
    entry: LevelPair,
    /// The number of consecutive entries with these levels.
    times: u64,
    /// Runs that are not hashed yet.
    buffer: Vec<u8>,
    hash: blake3::Hasher,
}

/// Decides for each leaf which of its levels are recorded. Nothing is recorded for a leaf outside lists that shares no
/// optional group with a neighbour.
pub fn plan_nested_levels(schema: &SchemaDescriptor) -> Vec<Option<NestedLevels>> {
    let leaves = schema.columns();
    let shared: Vec<_> = leaves.windows(2).map(|pair| find_shared_group(schema, &pair[0], &pair[1])).collect();
    let shared_levels = |at: Option<usize>| shared.get(at?)?.as_ref().map(GroupLevels::new);
    let planned = leaves.iter().enumerate().map(|(at, leaf)| {
        let (before, after) = (shared_levels(at.checked_sub(1)), shared_levels(Some(at)));
        let width =
            LevelPair { repetition: level_bits(leaf.max_rep_level()), definition: level_bits(leaf.max_def_level()) };
        let lists = find_lists(schema.root_schema(), leaf.path().parts());
        (!lists.is_empty() || before.is_some() || after.is_some()).then_some(NestedLevels {
            width,
            lists,
            before,
            after,
            last: None,
        })
    });
    planned.collect()
}

/// The innermost group that both leaves are in: its path and its maximum levels. Returns `None` if the group is always
/// present, because it then has no levels to compare.
fn find_shared_group(
    schema: &SchemaDescriptor,
    leaf: &ColumnDescriptor,
    next: &ColumnDescriptor,
) -> Option<(String, LevelPair)> {
    let (path, other) = (leaf.path().parts(), next.path().parts());
    let common = path.iter().zip(other).take_while(|(a, b)| a == b).count();
    let (depth, _) = walk_path(schema.root_schema(), &path[..common]).last()?;
    (depth != LevelPair::default()).then(|| (path[..common].join("."), depth))
}

fn level_bits(most: i16) -> u32 {
    bit_width(most.unsigned_abs().into())
}

/// For each node on the path to a leaf: its maximum levels, and whether it is repeated.
fn walk_path<'a>(root: &'a Type, path: &'a [String]) -> impl Iterator<Item = (LevelPair, bool)> + 'a {
    let (mut node, mut depth) = (Some(root), LevelPair::default());
    path.iter().map(move |name| {
        node = node.filter(|node| node.is_group()).and_then(|node| {
            let child = node.get_fields().iter().find(|child| child.name() == name);
            child.map(|child| child.as_ref())
        });
        let info = node.map(Type::get_basic_info).filter(|info| info.has_repetition());
        let repetition = info.map_or(Repetition::REQUIRED, |info| info.repetition());
        depth.repetition += u32::from(repetition == Repetition::REPEATED);
        depth.definition += u32::from(repetition != Repetition::REQUIRED);
        (depth, repetition == Repetition::REPEATED)
    })
}

/// For each list on the path: the least definition level at which it has an element.
fn find_lists(root: &Type, path: &[String]) -> Vec<u32> {
    walk_path(root, path).filter(|(_, repeated)| *repeated).map(|(depth, _)| depth.definition).collect()
}

impl GroupLevels {
    fn new((group, depth): &(String, LevelPair)) -> GroupLevels {
        let (group, depth, hash) = (group.clone(), *depth, blake3::Hasher::new());
        GroupLevels { group, depth, entry: LevelPair::default(), times: 0, buffer: Vec::new(), hash }
    }

    /// Adds `times` equal entries. Entries that only continue a list inside the group are skipped.
    fn add(&mut self, repetition: u32, definition: u32, times: u64) {
        if repetition > self.depth.repetition {
            return;
        }
        let entry = LevelPair { repetition, definition: definition.min(self.depth.definition) };
        if entry != self.entry {
            self.close();
            self.entry = entry;
        }
        self.times += times;
    }

    /// Ends a run of equal entries. Runs do not depend on page boundaries.
    fn close(&mut self) {
        if self.times == 0 {
            return;
        }
        self.buffer.extend(self.entry.repetition.to_le_bytes());
        self.buffer.extend(self.entry.definition.to_le_bytes());
        self.buffer.extend(self.times.to_le_bytes());
        self.times = 0;
        if self.buffer.len() >= HASH_BUFFER_BYTES {
            self.hash.update(&self.buffer);
            self.buffer.clear();
        }
    }

    /// The hash of all entries so far.
    fn finish_hash(&mut self) -> blake3::Hash {
        self.close();
        self.hash.update(&self.buffer);
        self.buffer.clear();
        self.hash.finalize()
    }
}

impl NestedLevels {
    /// Adds the levels of a page. Returns `None` if they cannot be read, or continue a list that is null, empty or not
    /// begun.
    pub fn add(&mut self, repetition: &[u8], definition: &[u8], entries: u64) -> Option<()> {
        let mut repetition = Levels::new(repetition, self.width.repetition, entries);
        let mut definition = Levels::new(definition, self.width.definition, entries);
        let mut left = entries;
        while left > 0 {
            let times = repetition.next_run_length()?.min(definition.next_run_length()?);
            self.add_entry(repetition.take(times), definition.take(times), times)?;
            left -= times;
        }
        Some(())
    }

    fn add_entry(&mut self, repetition: u32, definition: u32, times: u64) -> Option<()> {
        if let Some(list) = (repetition as usize).checked_sub(1) {
            // Both this entry and the one before must be elements of the list that is continued.
            let element_level = *self.lists.get(list)?;
            self.last.filter(|last| *last >= element_level && definition >= element_level)?;
        }
        self.last = Some(definition);
        for levels in [&mut self.before, &mut self.after].into_iter().flatten() {
            levels.add(repetition, definition, times);
        }
        Some(())
    }

    /// Refuses neighbouring leaves that disagree on the group that they share. Comparing neighbours is enough, because
    /// all leaves between two leaves of a group are leaves of this group too.
    pub fn require_same(&mut self, next: &mut NestedLevels, path: &str) -> Result<()> {
        let (Some(ours), Some(theirs)) = (&mut self.after, &mut next.before) else { return Ok(()) };
        if ours.finish_hash() == theirs.finish_hash() {
            return Ok(());
        }
        let expected = format!("the nulls and elements of '{}' as in the column before", ours.group);
        Err(Fault::new("parquet_ambiguous", path, expected, "different ones"))
    }
}

/// The levels of a page, run by run.
struct Levels<'a> {
    data: &'a [u8],
    /// The bit width of an encoded level.
    width: u32,
    /// The number of entries after the runs that were read.
    left: u64,
    /// The current level.
    level: u32,
    /// How many of the next entries are known to have the current level.
    times: u64,
    /// The bytes of the current packed run after its current block.
    packed: &'a [u8],
    /// The number of entries of the packed run after those that `times` counts.
    packed_left: u64,
    /// The current block of the packed run.
    block: [u32; BLOCK],
    /// The position of the next level in `block`.
    at: usize,
}

impl<'a> Levels<'a> {
    fn new(data: &'a [u8], width: u32, entries: u64) -> Levels<'a> {
        let block = [0; BLOCK];
        // A column without such levels stores no bytes for them.
        let times = if width == 0 { entries } else { 0 };
        Levels { data, width, left: entries - times, level: 0, times, packed: &[], packed_left: 0, block, at: BLOCK }
    }

    /// Advances to the next level. Returns a number of entries that have it; more entries may follow with the same
    /// level.
    fn next_run_length(&mut self) -> Option<u64> {
        if self.times > 0 {
            return Some(self.times);
        }
        if self.packed_left == 0 {
            match next_run(&mut self.data, self.width, self.left).filter(|_| self.left > 0)? {
                Run::Same(level, times) => {
                    (self.level, self.times) = (level, times);
                    self.left -= times;
                    return Some(times);
                }
                Run::Packed(packed, count) => {
                    (self.packed, self.packed_left, self.at) = (packed, count, BLOCK);
                    self.left -= count;
                }
            }
        }
        if self.at == BLOCK {
            self.packed = next_block(self.packed, self.width as usize, &mut self.block)?;
            self.at = 0;
        }
        let end = BLOCK.min(self.at + usize::try_from(self.packed_left).unwrap_or(BLOCK));
        self.level = self.block[self.at];
        let times = self.block[self.at..end].iter().take_while(|level| **level == self.level).count();
        self.at += times;
        self.packed_left -= times as u64;
        self.times = times as u64;
        Some(self.times)
    }

    /// Takes `times` entries of the current level, and returns the level.
    fn take(&mut self, times: u64) -> u32 {
        self.times -= times;
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    fn leaves(message: &str) -> Vec<Option<NestedLevels>> {
        plan_nested_levels(&SchemaDescriptor::new(Arc::new(parse_message_type(message).unwrap())))
    }

    /// What is recorded of a leaf: its lists, and the group that it shares with the next leaf, with the group's levels.
    type Recorded = Option<(Vec<u32>, Option<(String, u32, u32)>)>;

    fn recorded_leaves(message: &str) -> Vec<Recorded> {
        let levels = |levels: GroupLevels| (levels.group, levels.depth.repetition, levels.depth.definition);
        leaves(message).into_iter().map(|leaf| leaf.map(|leaf| (leaf.lists, leaf.after.map(levels)))).collect()
    }

    #[test]
    fn only_leaves_that_share_something_or_repeat_are_recorded() {
        assert_eq!(
            recorded_leaves("message m { optional int64 a; required group s { optional int64 b; required int64 c; } }"),
            [None, None, None]
        );
        let optional = "message m { optional group s { optional int64 b; required int64 c; } optional int64 d; }";
        assert_eq!(
            recorded_leaves(optional),
            [Some((vec![], Some(("s".to_owned(), 0, 1)))), Some((vec![], None)), None]
        );
        let listed = "message m { optional group l { repeated group list { optional group element {
            optional int64 a; optional group k { repeated group list { optional int64 element; } } } } } }";
        let expected = Some(("l.list.element".to_owned(), 1, 3));
        assert_eq!(recorded_leaves(listed), [Some((vec![2], expected)), Some((vec![2, 5], None))]);
    }

    /// Adds the entries to one leaf, each as a run of its own.
    fn add_entries(leaf: &mut NestedLevels, entries: &[(u32, u32)]) -> Option<()> {
        entries.iter().try_for_each(|(repetition, definition)| leaf.add_entry(*repetition, *definition, 1))
    }

    const PAIRS: &str = "message m { optional group m { repeated group key_value { required int64 key;
        optional group value { repeated group list { optional int64 element; } } } } }";

    #[test]
    fn the_leaves_of_a_map_must_agree_on_its_entries() {
        // {1: [1, 2], 2: null}, null, {}, {3: []}
        let keys = [(0, 2), (1, 2), (0, 0), (0, 1), (0, 2)];
        let values = [(0, 5), (2, 5), (1, 2), (0, 0), (0, 1), (0, 3)];
        let same = |keys: &[(u32, u32)], values: &[(u32, u32)]| {
            let mut found = leaves(PAIRS);
            let [Some(first), Some(second)] = &mut found[..] else { panic!() };
            add_entries(first, keys).unwrap();
            add_entries(second, values).unwrap();
            first.require_same(second, "m").is_ok()
        };
        assert!(same(&keys, &values));
        assert!(!same(&[(0, 2), (0, 0), (0, 0), (0, 1), (0, 2)], &values));
        assert!(!same(&[(0, 2), (0, 2), (0, 0), (0, 1), (0, 2)], &values));
        assert!(!same(&[(0, 2), (1, 2), (0, 1), (0, 1), (0, 2)], &values));
        assert!(!same(&keys[..4], &values));
    }

    #[test]
    fn a_list_goes_on_only_where_it_has_elements() {
        for (entries, right) in [
            (&[(0, 5), (2, 4), (1, 5)][..], true),
            (&[(0, 0), (1, 5)], false),
            (&[(0, 1), (1, 5)], false),
            (&[(0, 5), (1, 1)], false),
            (&[(0, 3), (2, 5)], false),
            (&[(0, 5), (2, 3)], false),
            (&[(0, 2), (1, 5)], true),
            (&[(1, 5)], false),
        ] {
            let mut found = leaves(PAIRS);
            assert_eq!(add_entries(found[1].as_mut().unwrap(), entries).is_some(), right, "{entries:?}");
        }
    }

    #[test]
    fn runs_and_packed_levels_are_equal() {
        let message = "message m { optional group s { optional int64 a; optional int64 b; } }";
        let mut found = leaves(message);
        let [Some(first), Some(second)] = &mut found[..] else { panic!() };
        // The levels 2 1 0 0 2 2 2 2 2: the first leaf has eight of them packed and then a run, on one page. The second
        // leaf has runs only, on two pages.
        first.add(&[], &[3, 0x06, 0xaa, 2, 2], 9).unwrap();
        second.add(&[], &[2, 2, 2, 1, 4, 0], 4).unwrap();
        second.add(&[], &[10, 2], 5).unwrap();
        assert!(first.require_same(second, "s").is_ok());
        assert!(first.add(&[], &[3, 0x06], 9).is_none());
    }

    #[test]
    fn many_packed_levels_are_read_block_by_block() {
        let message = "message m { optional group s { optional int64 a; optional int64 b; } }";
        let mut found = leaves(message);
        let [Some(first), Some(second)] = &mut found[..] else { panic!() };
        // The levels 0 1 2 0 2 0 1 ..., 200 in all. The first leaf has them packed, in 25 groups of eight levels of two
        // bits. The second leaf has them as runs.
        let levels: Vec<u32> = (0..200).map(|at| [0, 1, 2, 0, 2][at % 5]).collect();
        let packed = levels.chunks(4).map(|four| (0..4).fold(0, |byte, at| byte | (four[at] as u8) << (2 * at)));
        let runs: Vec<u8> = levels.iter().flat_map(|level| [2, *level as u8]).collect();
        first.add(&[], &[vec![51], packed.collect()].concat(), 200).unwrap();
        second.add(&[], &runs, 200).unwrap();
        assert!(first.require_same(second, "s").is_ok());
    }
}
