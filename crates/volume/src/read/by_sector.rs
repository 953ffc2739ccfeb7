//! Tree blocks that no way returns as a whole: put together from all ways, sector by sector.
//!
//! Rot may be in one sector of one copy and in another sector of the other, and a row with parity may have lost another column at each of
//! its places. Each sector is read in each of its ways; the results are its candidates. Candidates of all sectors are put together until
//! the block's checksum agrees. So a block is recovered as long as each of its sectors has a way that returns it right. Mending never takes
//! such a way away: it only corrects sources of other ways.
//!
//! A checksum of 32 bits agrees with a wrong block once in four thousand million tries, so at most [`MOST_TRIES`] blocks are tried. If
//! there are more, the candidates that the fewest ways return are left out.

use creamery_base::Logical;
use creamery_device::AlignedBuffer;
use creamery_format::Expected;

use crate::index::index;
use crate::volume::Volume;

/// The largest number of blocks that are put together from candidates.
const MOST_TRIES: usize = 1024;

/// The different results of a sector's ways, each with the number of ways that return it.
struct SectorResults(Vec<(AlignedBuffer, usize)>);

impl SectorResults {
    /// Reads the candidates of the sector at `at`: the result of most ways comes first.
    fn read(volume: &Volume, at: Logical) -> Self {
        let sector = volume.sector_size();
        let mut found = Vec::<(AlignedBuffer, usize)>::new();
        for way in volume.ways(at, sector.into()).into_iter().flatten() {
            let mut out = AlignedBuffer::zeroed(index(sector));
            if volume.read_way(&way, at, &mut out).is_err() {
                continue;
            }
            match found.iter_mut().find(|(known, _)| known[..] == out[..]) {
                Some((_, ways)) => *ways += 1,
                None => found.push((out, 1)),
            }
        }
        found.sort_by_key(|(_, ways)| std::cmp::Reverse(*ways));
        Self(found)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self, number: usize) -> &[u8] {
        &self.0[number].0
    }
}

impl Volume {
    /// Fills `block` with candidates of its sectors until it matches `want`. Returns false if it never does.
    pub(super) fn read_by_sector(&self, want: &Expected, block: &mut [u8]) -> bool {
        let sector = index(self.sector_size());
        let places = (0..block.len()).step_by(sector).map(|from| want.logical + from as u64);
        let mut sectors: Vec<SectorResults> = places.map(|at| SectorResults::read(self, at)).collect();
        if sectors.iter().any(|candidates| candidates.len() == 0) {
            return false;
        }
        leave_out(&mut sectors, MOST_TRIES);
        let mut chosen = vec![0; sectors.len()];
        for (candidates, out) in sectors.iter().zip(block.chunks_exact_mut(sector)) {
            out.copy_from_slice(candidates.bytes(0));
        }
        while self.verify_read(block, want).is_err() {
            let lens = sectors.iter().map(SectorResults::len);
            let Some(changed) = advance(&mut chosen, lens) else { return false };
            for number in 0..=changed {
                let out = &mut block[number * sector..][..sector];
                out.copy_from_slice(sectors[number].bytes(chosen[number]));
            }
        }
        true
    }
}

/// Drops the last candidates, of the sector that has most, until there are at most `most` blocks to try.
fn leave_out(sectors: &mut [SectorResults], most: usize) {
    let tries = |sectors: &[SectorResults]| {
        sectors.iter().try_fold(1_usize, |tries, candidates| tries.checked_mul(candidates.len()))
    };
    while tries(sectors).is_none_or(|tries| tries > most) {
        let longest = sectors.iter_mut().max_by_key(|candidates| candidates.len());
        longest.expect("more than one try has a sector").0.pop();
    }
}

/// Moves to the next combination: candidates of the first sector change most often. Returns the last sector that changed, or `None` after
/// the last combination.
fn advance(chosen: &mut [usize], lens: impl Iterator<Item = usize>) -> Option<usize> {
    for (number, (chosen, len)) in chosen.iter_mut().zip(lens).enumerate() {
        *chosen += 1;
        if *chosen < len {
            return Some(number);
        }
        *chosen = 0;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_choice_comes_once() {
        let lens = [2, 1, 3];
        let mut chosen = vec![0; 3];
        let mut all = vec![chosen.clone()];
        while let Some(changed) = advance(&mut chosen, lens.into_iter()) {
            assert!(changed == 0 || changed == 2, "a sector with one candidate never changes last");
            all.push(chosen.clone());
        }
        assert_eq!(all, [[0, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1], [0, 0, 2], [1, 0, 2]]);
    }

    #[test]
    fn what_fewest_ways_give_is_left_out_where_there_are_too_many_tries() {
        let of =
            |len: usize| SectorResults((0..len).map(|by| (AlignedBuffer::zeroed(1), len - by)).collect());
        let mut sectors = vec![of(9), of(1), of(4)];
        leave_out(&mut sectors, 36);
        assert_eq!(sectors.iter().map(SectorResults::len).collect::<Vec<_>>(), [9, 1, 4]);
        leave_out(&mut sectors, 16);
        assert_eq!(sectors.iter().map(SectorResults::len).collect::<Vec<_>>(), [4, 1, 4]);
        assert_eq!(sectors[0].0[3].1, 6, "the first ones stay");
        let mut many: Vec<_> = (0..100).map(|_| of(2)).collect();
        leave_out(&mut many, MOST_TRIES);
        assert_eq!(many.iter().filter(|candidates| candidates.len() == 2).count(), 10);
    }
}
