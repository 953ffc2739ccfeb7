//! The damaged blocks that a copy has met, and the number of files that each affects.

use std::collections::BTreeMap;

use creamery::Error;
use creamery::error::DamagedBlock;

/// Maximum number of blocks counted one by one: a damaged disk may have any number of them.
const BLOCKS_MAX: usize = 4096;

/// The damaged blocks of a copy.
#[derive(Default)]
pub(super) struct Blocks {
    met: BTreeMap<(String, DamagedBlock), BlockLoss>,
    /// The number of encounters with further blocks.
    others: u64,
}

/// The losses by one damaged block.
pub(super) struct BlockLoss {
    pub(super) files: u64,
    /// The fault of each of its copies.
    pub(super) why: String,
    /// The number of the last counted file.
    last: u64,
}

impl Blocks {
    /// Counts the block that `error` names, if any, for the file with this number.
    pub(super) fn note(&mut self, image: &str, error: &Error, file: u64) {
        let Some(block) = error.block() else { return };
        let key = (image.to_owned(), block);
        if !self.met.contains_key(&key) && self.met.len() == BLOCKS_MAX {
            self.others += 1;
            return;
        }
        let found =
            self.met.entry(key).or_insert_with(|| BlockLoss { files: 0, why: why(block, error), last: 0 });
        found.files += u64::from(found.last != file);
        found.last = file;
    }

    /// Each block with its image.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, DamagedBlock, &BlockLoss)> {
        self.met.iter().map(|((image, block), found)| (&image[..], *block, found))
    }

    pub(super) const fn others(&self) -> u64 {
        self.others
    }
}

/// The reason alone, without the block and its treatment.
fn why(block: DamagedBlock, error: &Error) -> String {
    let whole = error.without_kind();
    whole.split_once(&format!("{block}: ")).map_or(&whole[..], |(_, why)| why).to_owned()
}

#[cfg(test)]
mod tests {
    use creamery::ErrorKind;
    use creamery::id::Logical;

    use super::*;

    #[test]
    fn a_file_counts_once_for_each_block() {
        let block = DamagedBlock::Tree(Logical::new(4096));
        let error =
            || Error::new(ErrorKind::Unreadable, format!("its xattrs: reading {block}: no good copy"));
        let mut blocks = Blocks::default();
        for file in [1, 1, 2, 3, 3] {
            blocks.note("disk.img", &error().of_block(block), file);
        }
        blocks.note("disk.img", &error(), 4);
        let met: Vec<_> = blocks.iter().map(|(_, block, met)| (block, met.files, met.why.clone())).collect();
        assert_eq!(met, [(block, 3, "no good copy".to_owned())]);
    }

    #[test]
    fn blocks_beyond_the_limit_share_one_count() {
        let mut blocks = Blocks::default();
        for at in 0..BLOCKS_MAX as u64 + 2 {
            let error = Error::from(ErrorKind::Unreadable).of_block(DamagedBlock::Data(Logical::new(at)));
            blocks.note("disk.img", &error, 1);
        }
        assert_eq!((blocks.iter().count(), blocks.others()), (BLOCKS_MAX, 2));
    }
}
