//! Maps the damage of a tree block to a problem.

use creamery_format::{CorruptKind, Corruption};

use crate::problem::Problem;

pub(crate) fn problem_of(corruption: &Corruption) -> Problem {
    match corruption.kind() {
        CorruptKind::BlockLength { .. } => Problem::BlockUnreadable,
        CorruptKind::Checksum { .. } => Problem::BlockChecksum,
        CorruptKind::Fsid { .. } | CorruptKind::Address { .. } => Problem::BlockIdentity,
        CorruptKind::WrongGeneration { .. } => Problem::BlockGeneration,
        CorruptKind::Level { .. } | CorruptKind::LevelMax { .. } => Problem::BlockLevel,
        CorruptKind::Owner { .. } | CorruptKind::OwnerRange { .. } => Problem::BlockOwner,
        CorruptKind::FirstKey { .. } => Problem::BlockFirstKey,
        CorruptKind::KeyOrder { .. } => Problem::BlockKeyOrder,
        CorruptKind::Empty | CorruptKind::Count { .. } => Problem::BlockCount,
        CorruptKind::ItemEnd { .. } | CorruptKind::ItemGap { .. } | CorruptKind::ItemOverlap { .. } => {
            Problem::BlockItemBounds
        }
        CorruptKind::Name { .. } => Problem::BlockName,
        CorruptKind::NotWritten => Problem::BlockNotWritten,
        CorruptKind::ChildNull | CorruptKind::ChildAlignment { .. } | CorruptKind::ChildGeneration { .. } => {
            Problem::BlockPointer
        }
        _ => Problem::BlockItem,
    }
}
