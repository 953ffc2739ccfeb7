//! The subvolumes: their nesting, the sources of snapshots, and the space of each.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use creamery_base::{Escaped, HumanSize, TreeId};

use super::svg::{escaped, xml};
use crate::extents::FileUsage;
use crate::subvolume::SubvolumeTable;

/// Subvolumes that are listed.
const LISTED_MAX: usize = 10_000;

/// All subvolumes of a filesystem.
pub(super) struct SubvolumeTree {
    table: SubvolumeTable,
    /// Space below each subvolume, by path.
    usages: HashMap<PathBuf, FileUsage>,
}

impl SubvolumeTree {
    pub(super) fn new(table: SubvolumeTable) -> Self {
        let paths = table.subvolumes.iter().filter_map(|listed| path_of(listed.path.as_deref()?));
        let usages = paths.take(LISTED_MAX).map(|path| (path, FileUsage::default())).collect();
        Self { table, usages }
    }

    /// Adds the space below `path`, which begins at the top level, if that is a subvolume.
    pub(super) fn count(&mut self, path: &Path, usage: FileUsage) {
        if let Some(counted) = self.usages.get_mut(path) {
            *counted = usage;
        }
    }

    /// The tree as nested HTML lists.
    pub(super) fn html(&self) -> String {
        let mut text = String::from("<ul class=\"tree\">\n");
        let mut below: HashMap<Option<TreeId>, Vec<usize>> = HashMap::new();
        for (number, listed) in self.table.subvolumes.iter().enumerate().take(LISTED_MAX) {
            below.entry(listed.info.parent).or_default().push(number);
        }
        let mut shown = HashSet::new();
        // The top level is a root, and so is a subvolume whose parent is not in the table. Damage may make subvolumes contain each other:
        // each is shown once.
        let is_root = |number: &usize| {
            let parent = self.table.subvolumes[*number].info.parent;
            parent.is_none_or(|parent| self.table.get(parent).is_none())
        };
        let all: Vec<usize> = (0..self.table.subvolumes.len().min(LISTED_MAX)).collect();
        for number in all.iter().copied().filter(is_root).chain(all.iter().copied()) {
            self.branch(number, &below, &mut shown, &mut text, 0);
        }
        text.push_str("</ul>\n");
        if self.table.subvolumes.len() > LISTED_MAX {
            text.push_str(&format!("<p>and {} more</p>\n", self.table.subvolumes.len() - LISTED_MAX));
        }
        text
    }

    fn branch(
        &self,
        number: usize,
        below: &HashMap<Option<TreeId>, Vec<usize>>,
        shown: &mut HashSet<usize>,
        text: &mut String,
        depth: usize,
    ) {
        if !shown.insert(number) {
            return;
        }
        let listed = &self.table.subvolumes[number];
        let info = &listed.info;
        let name = match &listed.path {
            Some(path) if path.is_empty() => "the top level".to_owned(),
            Some(path) => escaped(path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)),
            None => "without a name".to_owned(),
        };
        let mut words = vec![format!("number {}", info.id), format!("generation {}", info.generation)];
        let usage = listed.path.as_deref().and_then(path_of).and_then(|path| self.usages.get(&path));
        if let Some(FileUsage { total, exclusive }) = usage.filter(|usage| usage.total > 0) {
            words.push(format!("{}, {} its own", HumanSize(*total), HumanSize(*exclusive)));
        }
        let origin = info.parent_uuid.and_then(|uuid| self.table.get_by_uuid(uuid));
        match (origin, info.is_snapshot) {
            (Some(origin), true) => words.push(format!(
                "a snapshot of {}",
                match &origin.path {
                    Some(path) if path.is_empty() => "the top level".to_owned(),
                    Some(path) => Escaped(path).to_string(),
                    None => format!("number {}", origin.info.id),
                }
            )),
            (None, true) => words.push("a snapshot of what is gone".to_owned()),
            _ => {}
        }
        let states = [
            (info.is_read_only(), "read-only"),
            (info.received_uuid.is_some(), "received"),
            (info.is_deleted, "being deleted"),
            (info.id == self.table.default, "the default"),
        ];
        words.extend(states.into_iter().filter(|(is, _)| *is).map(|(_, word)| word.to_owned()));
        let words = xml(&words.join(", "));
        text.push_str(&format!("<li><b>{name}</b> <span>{words}</span>"));
        let children = below.get(&Some(info.id)).filter(|_| depth < 64);
        if let Some(children) = children.filter(|children| !children.is_empty()) {
            text.push_str("\n<ul>\n");
            children.iter().for_each(|child| self.branch(*child, below, shown, text, depth + 1));
            text.push_str("</ul>");
        }
        text.push_str("</li>\n");
    }
}

/// The path from the top level, in the form of the count.
fn path_of(path: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    (!path.is_empty()).then(|| Path::new("/").join(std::ffi::OsStr::from_bytes(path)))
}
