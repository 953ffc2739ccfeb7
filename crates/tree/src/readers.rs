//! Guards of readers without locks: space that such a reader may read is not handed out again.
//!
//! Space that a transaction frees is part of the trees as the last commit left them. A reader without locks may still read it.
//! Such a reader has a guard. The guard names the last durable commit; space that later transactions free waits for it.
//!
//! A long reader yields: between two steps it asks whether a thread waits for its guard, and if so takes a new guard. So a thread that waits
//! for room waits for such readers as long as their steps take, and for other readers only for a limited time.
//!
//! # Invariants
//! - PIN-1: space freed in transaction G is handed out only after G is durable and every guard is at G or later.
//! - PIN-2: [`Readers::wait`] stops waiting for readers that yield when all of these are at the last commit. Shown by
//!   `who_waits_for_room_waits_for_readers_that_yield_until_they_do`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use creamery_base::Generation;
use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedMutex, rank};

struct State {
    last: Generation,
    readers: BTreeMap<Generation, Count>,
    /// Threads that wait for readers to go.
    waiting: u32,
}

/// Guards at one commit.
#[derive(Default)]
struct Count {
    all: u64,
    /// Guards of readers that yield.
    yielding: u64,
    /// Guards of queued requests. No reader depends on them.
    queued: u64,
}

/// The holder of a guard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reader,
    Yielding,
    Queued,
}

impl State {
    /// Whether a guard keeps space that was freed before the last commit.
    fn has_old(&self) -> bool {
        self.readers.keys().next().is_some_and(|oldest| *oldest < self.last)
    }

    fn has_old_that_yields(&self) -> bool {
        self.readers.range(..self.last).any(|(_, count)| count.yielding > 0)
    }
}

/// The guards of one filesystem's readers.
///
/// ```
/// use creamery_base::Generation;
/// let readers = creamery_tree::Readers::default();
/// readers.advance(Generation::new(8));
/// let guard = readers.guard();
/// readers.advance(Generation::new(9));
/// assert_eq!(readers.unread(), guard.generation());
/// ```
#[derive(Clone)]
pub struct Readers(Arc<Shared>);

struct Shared {
    state: RankedMutex<State, { rank::LEAF }>,
    /// Signalled when a guard drops while a thread waits.
    gone: RankedCondvar,
}

/// Keeps the blocks of one commit: until the guard drops, no space that this commit reaches is handed out again.
///
/// ```
/// let readers = creamery_tree::Readers::default();
/// let guard = readers.guard();
/// println!("reading as of transaction {}", guard.generation());
/// ```
#[must_use]
pub struct CommitRootGuard {
    generation: Generation,
    readers: Readers,
    kind: Kind,
}

impl Default for Readers {
    /// No guards, and no commit known yet.
    fn default() -> Self {
        let state = State { last: Generation::new(0), readers: BTreeMap::new(), waiting: 0 };
        Self(Arc::new(Shared { state: RankedMutex::new(state), gone: RankedCondvar::new() }))
    }
}

impl Readers {
    /// Returns a guard at the last commit.
    pub fn guard(&self) -> CommitRootGuard {
        self.guard_of(Kind::Reader)
    }

    /// Returns a guard at the last commit for a reader that yields: it drops the guard soon after [`CommitRootGuard::is_in_the_way`].
    pub fn yielding_guard(&self) -> CommitRootGuard {
        self.guard_of(Kind::Yielding)
    }

    fn guard_of(&self, kind: Kind) -> CommitRootGuard {
        let mut state = self.0.state.lock();
        let generation = state.last;
        state.readers.entry(generation).or_default().add(kind);
        CommitRootGuard { generation, readers: self.clone(), kind }
    }

    /// Makes `generation` the last commit.
    ///
    /// # Panics
    /// If a commit as late or later is already known (PIN-1).
    pub fn advance(&self, generation: Generation) {
        let mut state = self.0.state.lock();
        let last = state.last;
        assert!(generation > last, "PIN-1: what {generation} freed comes behind what {last} freed");
        state.last = generation;
    }

    /// Waits until no guard keeps space that was freed before the last commit: without limit for readers that yield, at most `most` for the others.
    /// The caller must hold no guard.
    pub fn wait(&self, most: Duration) {
        let mut state = self.0.state.lock();
        state.waiting += 1;
        let yielding = |state: &mut State| state.has_old_that_yields();
        let state = self.0.gone.pass_while(Reason::Reservation, state, yielding);
        let mut state = self.0.gone.pass_while_for(Reason::Reservation, state, most, |state| state.has_old());
        state.waiting -= 1;
    }

    /// Returns the last transaction whose freed space no guard keeps now or later: the oldest guard's, or the last commit.
    #[must_use]
    pub fn unread(&self) -> Generation {
        let state = self.0.state.lock();
        state.readers.keys().next().map_or(state.last, |oldest| state.last.min(*oldest))
    }
}

impl CommitRootGuard {
    /// Returns the commit whose roots the holder may read.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Turns the guard into the guard of a queued request.
    pub(crate) fn queued(mut self) -> Self {
        if let Some(count) = self.readers.0.state.lock().readers.get_mut(&self.generation) {
            count.yielding -= u64::from(self.kind == Kind::Yielding);
            count.queued += u64::from(self.kind != Kind::Queued);
        }
        self.kind = Kind::Queued;
        self
    }

    /// Whether a reader (not only queued requests) has a guard at the same commit.
    pub(crate) fn is_shared(&self) -> bool {
        let state = self.readers.0.state.lock();
        state.readers.get(&self.generation).is_some_and(|count| count.all > count.queued)
    }

    /// Whether a thread waits for space that the guard keeps.
    #[must_use]
    pub fn is_in_the_way(&self) -> bool {
        let state = self.readers.0.state.lock();
        state.waiting > 0 && self.generation < state.last
    }
}

impl Count {
    fn add(&mut self, kind: Kind) {
        self.all += 1;
        self.yielding += u64::from(kind == Kind::Yielding);
        self.queued += u64::from(kind == Kind::Queued);
    }
}

impl Clone for CommitRootGuard {
    /// Takes one more guard at the same commit.
    fn clone(&self) -> Self {
        let Self { generation, ref readers, kind } = *self;
        readers.0.state.lock().readers.entry(generation).or_default().add(kind);
        Self { generation, readers: readers.clone(), kind }
    }
}

impl Drop for CommitRootGuard {
    fn drop(&mut self) {
        let mut state = self.readers.0.state.lock();
        let count = state.readers.get_mut(&self.generation).expect("a guard is counted");
        count.all -= 1;
        count.yielding -= u64::from(self.kind == Kind::Yielding);
        count.queued -= u64::from(self.kind == Kind::Queued);
        if count.all == 0 {
            state.readers.remove(&self.generation);
        }
        let is_waited_for = state.waiting > 0;
        drop(state);
        if is_waited_for {
            self.readers.0.gone.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_room_waits_for_readers_that_yield_until_they_do() {
        let readers = Readers::default();
        readers.advance(Generation::new(8));
        let guard = readers.yielding_guard();
        readers.advance(Generation::new(9));
        assert!(!guard.is_in_the_way(), "nobody waits");
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| {
                readers.wait(Duration::ZERO);
                readers.unread()
            });
            while !guard.is_in_the_way() {
                std::thread::yield_now();
            }
            let next = readers.yielding_guard();
            drop(guard);
            assert_eq!(waits.join().unwrap(), Generation::new(9));
            assert!(!next.is_in_the_way());
        });
    }

    #[test]
    fn readers_that_do_not_yield_are_waited_for_for_a_moment() {
        let readers = Readers::default();
        readers.advance(Generation::new(8));
        let guard = readers.guard();
        readers.advance(Generation::new(9));
        readers.wait(Duration::ZERO);
        assert_eq!(readers.unread(), guard.generation());
    }
}
