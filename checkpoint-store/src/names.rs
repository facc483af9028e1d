//! Names in the directory of a job, and which of them are kept.

use crate::chain;
use redrt_wire::checkpoint::Generation;
use std::path::{Path, PathBuf};

const WHOLE: &str = "line-";
const PARTIAL: &str = ".partial";
/// File name of the manifest, which is written last.
pub(crate) const MANIFEST: &str = "manifest.json";

/// Name of a checkpoint's directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Name {
    /// Number of the checkpoint.
    pub generation: Generation,
    /// True if the checkpoint is complete.
    pub is_whole: bool,
}

impl Name {
    /// Name of a complete checkpoint.
    #[must_use]
    pub fn whole(generation: Generation) -> Self {
        Self { generation, is_whole: true }
    }

    /// Name of a checkpoint that is being written.
    #[must_use]
    pub fn partial(generation: Generation) -> Self {
        Self { generation, is_whole: false }
    }

    /// Parses a name. `None` if it does not belong to a checkpoint.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(WHOLE)?;
        let (digits, is_whole) = rest.strip_suffix(PARTIAL).map_or((rest, true), |digits| (digits, false));
        let is_number = digits == "0" || (digits.starts_with(|first: char| first != '0' && first.is_ascii_digit()));
        let generation = Generation(digits.parse().ok().filter(|_| is_number)?);
        Some(Self { generation, is_whole })
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{WHOLE}{}{}", self.generation, if self.is_whole { "" } else { PARTIAL })
    }
}

/// Selects the directories to delete: incomplete checkpoints except `current`, which is being written, and complete
/// ones that are neither needed ([`chain::kept`]) nor pinned for the archive.
#[must_use]
pub fn garbage(
    names: &[Name],
    current: Option<Generation>,
    pinned: &[Generation],
    chain_of: &dyn Fn(Generation) -> Option<Vec<Generation>>,
) -> Vec<Name> {
    let whole: Vec<_> = names.iter().filter(|name| name.is_whole).map(|name| name.generation).collect();
    let mut kept = chain::kept(&whole, chain_of);
    for pinned in pinned {
        kept.insert(*pinned);
        kept.extend(chain_of(*pinned).into_iter().flatten());
    }
    let stays = |name: &Name| match name.is_whole {
        true => kept.contains(&name.generation),
        false => Some(name.generation) == current,
    };
    names.iter().filter(|name| !stays(name)).copied().collect()
}

/// Path of the file with the same name in another checkpoint of the same place, on which a file may be built.
#[must_use]
pub fn of_checkpoint(path: &Path, generation: Generation) -> PathBuf {
    let place = path.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    place.join(Name::whole(generation).to_string()).join(path.file_name().unwrap_or_default())
}

/// Number of the newest complete checkpoint.
#[must_use]
pub fn newest(names: &[Name]) -> Option<Generation> {
    names.iter().filter(|name| name.is_whole).map(|name| name.generation).max()
}

/// Number for the next checkpoint: greater than all existing ones, incomplete ones included.
#[must_use]
pub fn next(names: &[Name]) -> Generation {
    Generation(names.iter().map(|name| name.generation.0 + 1).max().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::KEPT;
    use proptest::prelude::*;

    fn any_names() -> impl Strategy<Value = Vec<Name>> {
        let name = (0..20_u64, any::<bool>());
        prop::collection::btree_set(name, 0..12).prop_map(|names| {
            let name = |(generation, is_whole)| Name { generation: Generation(generation), is_whole };
            names.into_iter().map(name).collect()
        })
    }

    #[test]
    fn only_names_of_checkpoints_are_read() {
        let text = ["line-7", "line-7.partial", "line-0"];
        assert!(text.iter().all(|text| Name::parse(text).unwrap().to_string() == *text));
        for other in ["line-", "line-07", "line-+7", "line-7.old", "line--7", "lines-7", "line-7.partial.partial"] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
        assert_eq!(Name::parse("line-99999999999999999999"), None);
    }

    #[test]
    fn a_file_has_its_like_in_another_checkpoint_of_the_same_place() {
        for checkpoint in ["line-7", "line-7.partial"] {
            let file = Path::new("/job/at-3").join(checkpoint).join("0.image");
            assert_eq!(of_checkpoint(&file, Generation(5)), Path::new("/job/at-3/line-5/0.image"));
        }
    }

    proptest! {
        #[test]
        fn the_newest_checkpoints_stay_and_nothing_torn_does(names in any_names(), current in prop::option::of(0..20_u64)) {
            let current = current.map(Generation);
            let gone = garbage(&names, current, &[], &|_| Some(Vec::new()));
            let stays: Vec<_> = names.iter().filter(|name| !gone.contains(name)).collect();
            prop_assert_eq!(newest(&names), newest(&stays.iter().map(|name| **name).collect::<Vec<_>>()));
            let whole = names.iter().filter(|name| name.is_whole).count();
            prop_assert_eq!(stays.iter().filter(|name| name.is_whole).count(), whole.min(KEPT));
            prop_assert!(stays.iter().all(|name| name.is_whole || Some(name.generation) == current));
            let oldest_kept = stays.iter().filter(|name| name.is_whole).map(|name| name.generation).min();
            let newest_gone = gone.iter().filter(|name| name.is_whole).map(|name| name.generation).max();
            prop_assert!(newest_gone.is_none() || newest_gone < oldest_kept);
            prop_assert!(names.iter().all(|name| name.generation < next(&names)));
            let pinned: Vec<_> = gone.iter().filter(|name| name.is_whole).map(|name| name.generation).take(1).collect();
            let gone_beside = garbage(&names, current, &pinned, &|_| Some(Vec::new()));
            prop_assert!(gone_beside.iter().all(|name| !name.is_whole || !pinned.contains(&name.generation)));
            prop_assert_eq!(gone_beside.len() + pinned.len(), gone.len());
        }
    }
}
