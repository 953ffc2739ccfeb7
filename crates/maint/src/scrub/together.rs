//! Chunks with parity, which are scrubbed once for all of their devices.
//!
//! A row of RAID5 and RAID6 lies on all devices of its chunk, and is judged as a whole. The first device that comes to such a chunk leads:
//! it scrubs all of the chunk's rows, and counts for each device. Another device that comes meanwhile waits, and takes its own counts
//! later. A leading device waits for none, so no two wait for each other. A scrub that ends early adds to each device the counts that it
//! has not taken.

use std::collections::HashMap;

use creamery_base::lock::{RankedCondvar, RankedMutex, rank};
use creamery_base::{DevId, Logical};

use super::Counts;
use super::used::Position;

/// The counts of one stripe of a chunk.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) dev: DevId,
    /// The offset of the stripe on its device.
    pub(super) offset: u64,
    /// An earlier scrub has scrubbed everything before this offset, so that does not count.
    pub(super) from: u64,
    /// The counts of the device before it came to the chunk, if it has come.
    pub(super) before: Option<Counts>,
    pub(super) counts: Counts,
    /// The errors among the counts that were repaired.
    pub(super) mended: Counts,
}

impl Part {
    /// All counts of the device, if it has come to the chunk.
    pub(super) fn all(&self) -> Option<Counts> {
        let mut all = self.before?;
        all += self.counts;
        Some(all)
    }

    /// The counts of a device that ends before it takes them: for a chunk that it has not come to, only those that no later scrub finds.
    fn unclaimed(&self) -> Counts {
        if self.before.is_some() { self.counts } else { self.mended }
    }
}

/// The end of a chunk's scrub.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Whole,
    Cancelled,
    /// The trees do not give the content of the chunk, with the reason.
    Failed(String),
}

/// The scrub of a chunk in the hands of its leader. The leader gives it back ([`Together::put`], [`Together::end`]); on drop it ends as
/// failed.
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
    /// Some devices have not taken their counts yet.
    Over { over: Over, parts: Vec<Part> },
}

/// The state that a device meets when it comes to a chunk.
pub(super) enum Arrival<'t> {
    Leads(Lead<'t>),
    /// Another device leads.
    Waits,
    Over(Over, Counts),
}

/// The chunks with parity that the scrub of one device leads, or has scrubbed for other devices. All steps of one scrub share it
/// ([`Scrub::sharing`]).
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
    /// A device comes to a chunk, or comes back to one that it leads. `first` gives the parts and the position of a chunk to which no
    /// device came before.
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

    /// A device gives up a chunk if it leads it, which ends the chunk as `over` for the other devices, too. Returns the device's counts.
    /// `comes` tells which devices will come for their counts.
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

    /// The counts of a device that did not come for them. No device leads a chunk any more.
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

    /// The counts of a device for a chunk that it leads, between two of its steps.
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

/// Notes the devices that have come to a chunk, and their counts before.
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
    /// Gives the chunk back until the leader's next step.
    pub(super) fn put(mut self) {
        let (given, now) = (std::mem::take(&mut self.parts), self.position);
        if let Some(Chunk::Led { parts, position, .. }) = self.together.chunks.lock().get_mut(&self.chunk) {
            *parts = given;
            *position = Some(now);
        }
        self.is_back = true;
    }

    /// Ends the chunk. Returns the counts of the leader's own device. `comes` tells which devices will come for their counts.
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
