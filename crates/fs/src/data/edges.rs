//! The edges of a range: the sectors that it covers in part.

use creamery_base::{Result, Wait};
use smallvec::SmallVec;

use super::extent_map::{ExtentKind, ExtentMaps};
use super::write::write;
use crate::inode::{FileInode, InodeItem};

/// Writes zeros to the parts of sectors at both ends of `[offset, end)`, where there is data.
/// Errors: those of a write.
pub(crate) fn zero_edges(inode: &FileInode<'_>, item: &mut InodeItem, range: (u64, u64)) -> Result<()> {
    let sector = u64::from(inode.engine().sector_size());
    for (start, end) in edges(range, sector) {
        let end = end.min(item.size);
        if start < end && is_data(inode, start - start % sector, sector)? {
            let zeros = vec![0; usize::try_from(end - start).expect("less than a sector")];
            write(inode, item, start, &zeros)?;
        }
    }
    Ok(())
}

/// The parts of sectors at both ends of a range.
fn edges((start, end): (u64, u64), sector: u64) -> SmallVec<[(u64, u64); 2]> {
    let (first, last) = (start.next_multiple_of(sector), end - end % sector);
    if last < first {
        return SmallVec::from_slice(&[(start, end)]);
    }
    [(start, first), (last, end)].into_iter().filter(|(start, end)| start < end).collect()
}

fn is_data(inode: &FileInode<'_>, at: u64, sector: u64) -> Result<bool> {
    let mut maps = ExtentMaps::new(inode.tree(), inode.id.ino, (at, at + sector), sector, Wait::Yes)?;
    let kind = maps.next()?.map(|map| map.kind);
    Ok(kind.is_some_and(|kind| !matches!(kind, ExtentKind::Hole | ExtentKind::Prealloc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_a_range_are_the_parts_of_sectors_that_it_has() {
        for (range, parts) in [
            ((0, 4096), &[][..]),
            ((0, 8192), &[]),
            ((1, 4096), &[(1, 4096)]),
            ((0, 4095), &[(0, 4095)]),
            ((5, 9), &[(5, 9)]),
            ((4000, 4100), &[(4000, 4096), (4096, 4100)]),
            ((4095, 12289), &[(4095, 4096), (12288, 12289)]),
        ] {
            assert_eq!(edges(range, 4096).as_slice(), parts, "{range:?}");
        }
    }
}
