//! The ways to read the bytes of a range, in the order in which they are tried.
//!
//! In a chunk without parity each copy is a way. In a chunk with parity each set of stripes that may be lost is a way: the bytes on those
//! are rebuilt from the others (`attempt`). Stripes of missing members are lost in all ways. In the first way those of members that missed
//! writes or have failed are lost, too. Then come: no other stripe; each single other stripe; for RAID6 pairs of them, as many as the
//! parity allows. A way that treats a readable stripe as lost is a guess: a reader without a checksum takes none of those (PARITY-2).

use std::fmt;
use std::sync::Arc;

use creamery_base::{DevId, Error, ErrorKind, Logical, Physical, Result};
use smallvec::SmallVec;

use crate::device_range::DeviceRange;
use crate::mapping::{self, Mirror, MirrorSet};
use crate::members::MemberState;
use crate::rows::Rows;
use crate::{Chunk, Volume};

/// Indexes of stripes of a chunk.
pub(crate) type Stripes = SmallVec<[usize; 2]>;

/// One way to read a range.
///
/// ```
/// # use creamery_volume::ReadWay;
/// fn is_first_choice(way: &ReadWay) -> bool {
///     !way.is_rebuilt()
/// }
/// ```
#[derive(Clone, Debug)]
pub struct ReadWay(pub(crate) Kind);

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A copy of a part of a chunk. The chunk is set if it matters which members have it.
    Copy(Mirror, Option<Arc<Chunk>>),
    /// A read as if these stripes of a chunk with parity were lost.
    Without { chunk: Arc<Chunk>, lost: Stripes, direct: Mirror, trust: Trust },
}

/// The trust in bytes without a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// They come from members that have the last commit.
    Known,
    /// A member that missed writes contributes to them.
    Stale,
    /// They avoid a failed member that may still be readable there: a reader without a checksum tries that member first.
    Unasked,
}

impl ReadWay {
    /// Whether the bytes are rebuilt as if a stripe was lost.
    #[must_use]
    pub fn is_rebuilt(&self) -> bool {
        matches!(&self.0, Kind::Without { lost, .. } if !lost.is_empty())
    }

    /// Returns the place of the requested bytes; some of them may not be read there.
    #[must_use]
    pub fn direct(&self) -> &Mirror {
        match &self.0 {
            Kind::Copy(mirror, _) | Kind::Without { direct: mirror, .. } => mirror,
        }
    }
}

impl ReadWay {
    /// Returns the part of the way that reads `len` bytes of the range, from offset `from` on.
    ///
    /// # Panics
    /// If the part lies in several pieces, or outside the range.
    #[must_use]
    pub fn part(&self, from: u64, len: u64) -> Self {
        let cut = |mirror: &Mirror| -> Mirror {
            let mut begin = 0;
            let is_its = |piece: &&DeviceRange| {
                let range = begin..begin + piece.len;
                begin = range.end;
                range.contains(&from)
            };
            let piece = mirror.iter().find(is_its).expect("the part is one of the range");
            let within = from - (begin - piece.len);
            assert!(len <= piece.len - within, "parts are cut of single pieces");
            let at = Physical { offset: piece.at.offset + within, ..piece.at };
            Mirror::from_elem(DeviceRange { at, len }, 1)
        };
        Self(match &self.0 {
            Kind::Copy(mirror, chunk) => Kind::Copy(cut(mirror), chunk.clone()),
            Kind::Without { chunk, lost, direct, trust } => Kind::Without {
                chunk: Arc::clone(chunk),
                lost: lost.clone(),
                direct: cut(direct),
                trust: *trust,
            },
        })
    }
}

impl fmt::Display for ReadWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.direct().first()) {
            (Kind::Without { chunk, lost, .. }, _) if !lost.is_empty() => {
                f.write_str("rebuilt without")?;
                lost.iter().try_for_each(|stripe| write!(f, " device {}", chunk.stripes[*stripe].dev))
            }
            (_, Some(piece)) => write!(f, "{}", piece.at),
            (_, None) => f.write_str("nowhere"),
        }
    }
}

/// All ways to read a range, in the order in which they are tried: its copies; or, in a chunk with parity, each set of stripes that may be
/// lost.
///
/// ```no_run
/// # fn example(volume: &creamery_volume::Volume, at: creamery_base::Logical) -> creamery_base::Result<()> {
/// let mut sector = vec![0; 4096];
/// for way in volume.ways(at, 4096)? {
///     let is_read = volume.read_way(&way, at, &mut sector).is_ok();
///     println!("{way}: {}", if is_read { "read" } else { "not read" });
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Ways(Rest);

#[derive(Clone)]
enum Rest {
    Copies(MirrorSet, usize, Option<Arc<Chunk>>),
    Rows(Hypotheses),
}

/// Stripes that may be lost.
#[derive(Clone)]
struct Hypotheses {
    chunk: Arc<Chunk>,
    direct: Mirror,
    parity: usize,
    /// Stripes of missing members.
    gone: Stripes,
    /// Stripes of missing members, and of members that missed writes or have failed.
    suspect: Stripes,
    /// Stripes of members that missed writes.
    stale: Stripes,
    /// Stripes that contain the range itself.
    own: SmallVec<[usize; 4]>,
    next: Next,
}

#[derive(Clone, Copy)]
enum Next {
    WithoutSuspects,
    Gone,
    /// And one or two stripes more.
    More(usize, Option<usize>),
    End,
}

impl Volume {
    /// Returns the ways to read `[at, at + len)`.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if no chunk covers the range (addresses come from the disk).
    pub fn ways(&self, at: Logical, len: u64) -> Result<Ways> {
        let Some(chunk) = self.chunk_at(at) else {
            return Err(Error::new(ErrorKind::Corrupt, format!("no chunk covers logical {at}")));
        };
        let copies = mapping::map(&chunk, at, len)?;
        let Some(rows) = Rows::of(&chunk) else {
            if self.members().are_alike() {
                return Ok(Ways(Rest::Copies(copies, 0, None)));
            }
            return Ok(Ways(Rest::Copies(self.in_order(copies), 0, Some(chunk))));
        };
        let those = |wanted: &dyn Fn(DevId) -> bool| -> Stripes {
            let stripes = chunk.stripes.iter().enumerate().filter(|(_, stripe)| wanted(stripe.dev));
            stripes.map(|(number, _)| number).collect()
        };
        let gone = those(&|dev| self.member_state(dev) == MemberState::Missing);
        let suspect = those(&|dev| self.member_state(dev).rank() > 0);
        let stale = those(&|dev| self.members().is_stale(dev));
        let mut own: SmallVec<[usize; 4]> = rows
            .elements(at.get() - chunk.start.get(), len)
            .map(|element| rows.stripe_of(element.row, element.column))
            .collect();
        own.sort_unstable();
        own.dedup();
        let direct = copies.mirrors().first().cloned().unwrap_or_default();
        let parity = rows.row().columns() - rows.row().data_columns();
        let next = if suspect.len() == gone.len() { Next::Gone } else { Next::WithoutSuspects };
        Ok(Ways(Rest::Rows(Hypotheses { parity, gone, suspect, stale, own, next, direct, chunk })))
    }
}

impl Iterator for Ways {
    type Item = ReadWay;

    fn next(&mut self) -> Option<ReadWay> {
        match &mut self.0 {
            Rest::Copies(copies, next, chunk) => {
                let mirror = copies.mirrors().get(*next)?.clone();
                *next += 1;
                Some(ReadWay(Kind::Copy(mirror, chunk.clone())))
            }
            Rest::Rows(hypotheses) => hypotheses.next(),
        }
    }
}

impl Hypotheses {
    fn next(&mut self) -> Option<ReadWay> {
        loop {
            let (now, stripes) = (self.next, self.chunk.stripes.len());
            let lost = match now {
                Next::WithoutSuspects => {
                    self.next = Next::Gone;
                    self.suspect.clone()
                }
                Next::Gone => {
                    self.next = if self.gone.len() < self.parity { Next::More(0, None) } else { Next::End };
                    self.gone.clone()
                }
                Next::More(one, two) => {
                    self.next = self.after(one, two, stripes);
                    let more: Stripes = [Some(one), two].into_iter().flatten().collect();
                    if !self.is_news(&more) {
                        continue;
                    }
                    self.and_gone(&more)
                }
                Next::End => return None,
            };
            if lost.len() > self.parity && !matches!(now, Next::Gone) {
                continue;
            }
            let trust = match now {
                _ if self.reads_stale(&lost) => Trust::Stale,
                Next::WithoutSuspects if self.passes_over_failed(&lost) => Trust::Unasked,
                _ => Trust::Known,
            };
            let (chunk, direct) = (Arc::clone(&self.chunk), self.direct.clone());
            return Some(ReadWay(Kind::Without { chunk, lost, direct, trust }));
        }
    }

    fn after(&self, one: usize, two: Option<usize>, stripes: usize) -> Next {
        let pairs = self.gone.len() + 2 <= self.parity;
        match two {
            _ if one + 1 >= stripes && two.is_none() => match pairs {
                true if stripes > 1 => Next::More(0, Some(1)),
                _ => Next::End,
            },
            None => Next::More(one + 1, None),
            Some(two) if two + 1 < stripes => Next::More(one, Some(two + 1)),
            Some(_) if one + 2 < stripes => Next::More(one + 1, Some(one + 2)),
            Some(_) => Next::End,
        }
    }

    /// Whether these lost stripes give other bytes: none of them is missing anyway, and a part of the range has to be rebuilt.
    fn is_news(&self, more: &[usize]) -> bool {
        let is_rebuilt = |stripe: &usize| more.contains(stripe) || self.gone.contains(stripe);
        !more.iter().any(|stripe| self.gone.contains(stripe)) && self.own.iter().any(is_rebuilt)
    }

    /// Whether a member that missed writes contributes: other stripes are read in place, and to rebuild a lost stripe all others are read.
    fn reads_stale(&self, lost: &[usize]) -> bool {
        let is_rebuilt = self.own.iter().any(|stripe| lost.contains(stripe));
        let is_read = |stripe: &&usize| !lost.contains(stripe) && (is_rebuilt || self.own.contains(stripe));
        self.stale.iter().any(|stripe| is_read(&stripe))
    }

    /// Whether a part of the range is rebuilt that is on a failed member, and the member is neither missing nor stale.
    fn passes_over_failed(&self, lost: &[usize]) -> bool {
        let has_failed = |stripe: &&usize| !self.gone.contains(stripe) && !self.stale.contains(stripe);
        lost.iter().filter(has_failed).any(|stripe| self.own.contains(stripe))
    }

    fn and_gone(&self, more: &[usize]) -> Stripes {
        let mut lost = self.gone.clone();
        lost.extend(more.iter().copied().filter(|stripe| !self.gone.contains(stripe)));
        lost
    }
}
