//! The trees that refer to an extent, as far as its item shows.

use creamery_base::{Generation, TreeId};

use super::backref::Backref;
use super::item::ExtentItem;

/// The trees that refer to an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owners {
    Nobody,
    /// Every reference names this tree, and the extent was made in this transaction. Trees that share the tree's blocks may reach
    /// it, too, when it is old enough.
    Sole {
        root: TreeId,
        generation: Generation,
    },
    /// Several trees, or one by the address of a block.
    Several,
}

impl Owners {
    pub(crate) fn of(item: &ExtentItem) -> Self {
        if item.refs == 0 {
            return Self::Nobody;
        }
        let mut roots = item.inline.iter().map(|(backref, _)| match backref {
            Backref::TreeBlock { root } | Backref::ExtentData { root, .. } => Some(*root),
            Backref::SharedBlock { .. } | Backref::SharedData { .. } => None,
        });
        match roots.next() {
            Some(Some(root))
                if item.refs == item.inline_count() && roots.all(|other| other == Some(root)) =>
            {
                Self::Sole { root, generation: item.generation }
            }
            _ => Self::Several,
        }
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::{Logical, ObjectId};
    use creamery_format::ExtentFlags;

    use super::*;

    #[test]
    fn one_tree_has_an_extent_when_all_references_name_it() {
        let generation = Generation::new(7);
        let of = |backrefs: &[(Backref, u32)], refs| {
            let mut item = ExtentItem::new(generation, ExtentFlags::DATA);
            item.inline.extend_from_slice(backrefs);
            item.refs = refs;
            Owners::of(&item)
        };
        let data = |root, offset| Backref::ExtentData { root, ino: ObjectId::new(257), offset };
        let (one, other) = (TreeId::FS, TreeId::new(256));
        let sole = Owners::Sole { root: one, generation };
        assert_eq!(of(&[], 0), Owners::Nobody);
        assert_eq!(of(&[(data(one, 0), 2), (data(one, 4096), 1)], 3), sole);
        assert_eq!(of(&[(Backref::TreeBlock { root: one }, 1)], 1), sole);
        let several: [(&[_], u64); 4] = [
            (&[(data(one, 0), 1)], 2),
            (&[(data(one, 0), 1), (data(other, 0), 1)], 2),
            (&[(data(one, 0), 1), (Backref::SharedData { parent: Logical::new(4096) }, 1)], 2),
            (&[(Backref::SharedBlock { parent: Logical::new(4096) }, 1)], 1),
        ];
        for (backrefs, refs) in several {
            assert_eq!(of(backrefs, refs), Owners::Several, "{backrefs:?}");
        }
    }
}
