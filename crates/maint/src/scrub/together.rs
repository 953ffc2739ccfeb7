//! Chunks with parity, which are scrubbed once for all of their devices.
//!
//! A row of RAID5 and RAID6 lies on all devices of its chunk, and is judged as a whole. The first device that comes to such a chunk leads: it scrubs all of its
//! rows, and counts for each device. Another one that comes meanwhile waits; later it takes the counts that are its own. A device that
//! leads waits for none, so no two wait for each other. A scrub that ends early adds to each device what that has not taken.

use std::collections::HashMap;

use creamery_base::lock::{RankedCondvar, RankedMutex, rank};
use creamery_base::{DevId, Logical};

use super::Counts;
use super::used::Position;

/// What was counted of one stripe of a chunk.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) dev: DevId,
    /// Where the stripe begins on its device.
    pub(super) offset: u64,
    /// What lies before was scrubbed by an earlier scrub, and does not count.
    pub(super) from: u64,
    /// What the device has counted before it came to the chunk, if it has come.
    pub(super) before: Option<Counts>,
    pub(super) counts: Counts,
    /// Those errors of it that were mended.
    pub(super) mended: Counts,
}

impl Part {
    /// All that the device has counted, if it has come to the chunk.
    pub(super) fn all(&self) -> Option<Counts> {
        let mut all = self.before?;
        all += self.counts;
        Some(all)
    }

    /// What counts of it where the device ends before it takes it: of a chunk that it has not come to, only what no later scrub finds.
    fn unclaimed(&self) -> Counts {
        if self.before.is_some() { self.counts } else { self.mended }
    }
}

/// How the scrub of a chunk ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Whole,
    Cancelled,
    /// The trees do not tell what lies in it: why.
    Failed(String),
}

/// The scrub of a chunk, which its leader has in hands. It is given back ([`Together::put`], [`Together::end`]); one that is dropped ends as failed.
pub(super) struct Lead<'t> {
    together: &'t Together,
    chunk: Logical,
    pub(super) parts: Vec<Part>,
    pub(super) position: Position,
    is_back: bool,
}

enum Chunk {
    /// A device leads; between its steps the parts are here.
    Led { by: DevId, parts: Vec<Part>, position: Option<Position>, arrived: Vec<(DevId, Counts)> },
    /// Devices that have not taken their counts yet.
    Over { over: Over, parts: Vec<Part> },
}

/// What a device finds that comes to a chunk.
pub(super) enum Arrival<'t> {
    Leads(Lead<'t>),
    /// Another one leads.
    Waits,
    Over(Over, Counts),
}

/// The chunks with parity that the scrub of one device has in hands, or has scrubbed for others. Each step of one scrub has the same ([`Scrub::sharing`]).
///
/// ```no_run
/// # fn example(engine: &creamery_txn::Engine) {
/// use std::sync::Arc;
/// use creamery_maint::scrub::{Scrub, Together};
/// let scrub = Scrub::reading(engine).sharing(&Arc::<Together>::default());
/// # }
/// ```
///
/// [`Scrub::sharing`]: super::Scrub::sharing
#[derive(Default)]
pub struct Together {
    chunks: RankedMutex<HashMap<Logical, Chunk>, { rank::LEAF }>,
    ended: RankedCondvar,
}

impl Together {
    /// A device comes to a chunk, or comes back to the one that it leads. `first` gives the parts and the position of a chunk to which no device came before.
    pub(super) fn arrive(
        &self,
        chunk: Logical,
        (dev, counts): (DevId, Counts),
        first: impl FnOnce() -> (Vec<Part>, Position),
    ) -> Arrival<'_> {
        let mut chunks = self.chunks.lock();
        let begun = chunks.entry(chunk).or_insert_with(|| {
            let (parts, position) = first();
            Chunk::Led { by: dev, parts, position: Some(position), arrived: vec![(dev, counts)] }
        });
        match begun {
            Chunk::Led { by, parts, position, arrived } if *by == dev => {
                let mut parts = std::mem::take(parts);
                let position = position.take().expect("a chunk is led by one thread");
                note_arrived(&mut parts, arrived);
                Arrival::Leads(Lead { together: self, chunk, parts, position, is_back: false })
            }
            Chunk::Led { arrived, .. } => {
                if !arrived.iter().any(|(there, _)| *there == dev) {
                    arrived.push((dev, counts));
                }
                Arrival::Waits
            }
            Chunk::Over { over, parts } => {
                let over = over.clone();
                let taken = parts.iter().position(|part| part.dev == dev).map(|its| parts.swap_remove(its));
                if parts.is_empty() {
                    chunks.remove(&chunk);
                }
                Arrival::Over(over, taken.map(|part| part.counts).unwrap_or_default())
            }
        }
    }

    /// A device gives up a chunk that it leads, if it does: the others end as it does. Gives what it has counted of it. `comes` says which devices will come for
    /// theirs.
    pub(super) fn give_up(
        &self,
        (chunk, dev): (Logical, DevId),
        over: Over,
        comes: impl Fn(DevId) -> bool,
    ) -> Counts {
        let mut chunks = self.chunks.lock();
        let (parts, position) = match chunks.get_mut(&chunk) {
            Some(Chunk::Led { by, parts, position: Some(position), .. }) if *by == dev => {
                (std::mem::take(parts), *position)
            }
            _ => return Counts::default(),
        };
        drop(chunks);
        Lead { together: self, chunk, parts, position, is_back: false }.end(dev, over, comes)
    }

    /// What was counted of a device that did not come for it. No device leads a chunk any more.
    pub(super) fn unclaimed(&self, dev: DevId) -> Counts {
        let mut counts = Counts::default();
        self.chunks.lock().retain(|_, chunk| match chunk {
            Chunk::Led { .. } => true,
            Chunk::Over { parts, .. } => {
                parts.extract_if(.., |part| part.dev == dev).for_each(|part| counts += part.unclaimed());
                !parts.is_empty()
            }
        });
        counts
    }

    /// What a device has counted of a chunk that it leads, between two of its steps.
    pub(super) fn counted(&self, chunk: Logical, dev: DevId) -> Counts {
        match self.chunks.lock().get(&chunk) {
            Some(Chunk::Led { by, parts, .. }) if *by == dev => {
                parts.iter().find(|part| part.dev == dev).map(|part| part.counts).unwrap_or_default()
            }
            _ => Counts::default(),
        }
    }

    /// Waits until no device leads the chunk any more.
    pub(super) fn wait(&self, chunk: Logical) {
        let is_led =
            |chunks: &mut HashMap<Logical, Chunk>| matches!(chunks.get(&chunk), Some(Chunk::Led { .. }));
        drop(self.ended.wait_while(self.chunks.lock(), is_led));
    }
}

/// Notes which devices have come to a chunk, and what they had counted before.
fn note_arrived(parts: &mut [Part], arrived: &[(DevId, Counts)]) {
    for part in parts {
        let its = arrived.iter().find(|(dev, _)| *dev == part.dev);
        part.before = part.before.or(its.map(|(_, counts)| *counts));
    }
}

impl std::fmt::Debug for Together {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Together").finish_non_exhaustive()
    }
}

impl Lead<'_> {
    /// Gives it back until the leader's next step.
    pub(super) fn put(mut self) {
        let (given, now) = (std::mem::take(&mut self.parts), self.position);
        if let Some(Chunk::Led { parts, position, .. }) = self.together.chunks.lock().get_mut(&self.chunk) {
            *parts = given;
            *position = Some(now);
        }
        self.is_back = true;
    }

    /// The chunk is done with. Gives what the leader's own device has counted of it. `comes` says which devices will come for theirs.
    pub(super) fn end(mut self, leader: DevId, over: Over, comes: impl Fn(DevId) -> bool) -> Counts {
        let parts = std::mem::take(&mut self.parts);
        let (own, others): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| part.dev == leader);
        let parts: Vec<Part> = others.into_iter().filter(|part| comes(part.dev)).collect();
        self.finish(over, parts);
        own.into_iter().next().map(|part| part.counts).unwrap_or_default()
    }

    fn finish(&mut self, over: Over, mut parts: Vec<Part>) {
        self.is_back = true;
        let mut chunks = self.together.chunks.lock();
        if let Some(Chunk::Led { arrived, .. }) = chunks.get(&self.chunk) {
            note_arrived(&mut parts, arrived);
        }
        if parts.is_empty() {
            chunks.remove(&self.chunk);
        } else {
            chunks.insert(self.chunk, Chunk::Over { over, parts });
        }
        drop(chunks);
        self.together.ended.notify_all();
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if !self.is_back {
            let parts = std::mem::take(&mut self.parts);
            self.finish(Over::Failed("its scrub died".to_owned()), parts);
        }
    }
}
