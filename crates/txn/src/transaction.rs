//! The running transaction: its generation, its gate, its commit's phase, the data to flush, and its end by an abort.
//!
//! # Invariants
//! - TXN-GATE-1: a handle has a part of the gate, its thread's, shared; the commit's critical section has all parts alone.
//!   Held by `Joined`, `ClosedGate`.
//! - TXN-GATE-2: generations follow each other with the gate closed, so a handle sees one only.
//! - TXN-GATE-3: data is written before a transaction's metadata refers to it, and that transaction's commit flushes it: its token goes
//!   from the completed extent by way of the transaction to the flush.
//! - TXN-GATE-4: data written over data that trees show already is flushed by the first commit, or write of logs, that takes it to its flush.
//!   No handle shows such data. It belongs to no transaction, and may be added at any moment, beside a closed gate, too.
//!   Shown by `what_is_overwritten_is_durable_with_its_times`.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedMutex, RankedRead, RankedRwLock, RankedWrite, rank};
use creamery_base::{Error, ErrorKind, Generation, PerThread, Result, panics};
use creamery_volume::{Durable, Volume, Written};

use crate::abort::{Abort, AbortCell};
use crate::commit::{CommitPhase, PhaseNow};

/// The running transaction.
pub(crate) struct Transaction {
    generation: AtomicU64,
    gate: PerThread<RankedRwLock<(), { rank::TRANSACTION }>>,
    written: RankedMutex<Option<Written>, { rank::LEAF }>,
    overwritten: RankedMutex<Option<Written>, { rank::LEAF }>,
    phase: PhaseNow,
    aborts: AbortCell,
    /// The gate of threads that, by a planted fault, do not hold off the commit.
    #[cfg(feature = "faults")]
    no_gate: std::sync::OnceLock<RankedRwLock<(), { rank::TRANSACTION }>>,
}

/// A part of the gate: the transaction does not end before it is given back (TXN-GATE-1).
pub(crate) type Joined<'t> = RankedRead<'t, (), { rank::TRANSACTION }>;

/// The closed gate: no thread has a handle.
#[must_use]
pub(crate) struct ClosedGate<'t> {
    transaction: &'t Transaction,
    _parts: Vec<RankedWrite<'t, (), { rank::TRANSACTION }>>,
}

impl Transaction {
    /// Creates the transaction after `last`.
    pub(crate) fn after(last: Generation) -> Self {
        Self {
            generation: AtomicU64::new(last.next().get()),
            gate: PerThread::default(),
            written: RankedMutex::new(None),
            overwritten: RankedMutex::new(None),
            phase: PhaseNow::default(),
            aborts: AbortCell::default(),
            #[cfg(feature = "faults")]
            no_gate: std::sync::OnceLock::new(),
        }
    }

    /// Plants a fault: a thread that joins does not hold off the commit.
    #[cfg(feature = "faults")]
    pub(crate) fn forget_the_gate(&self) {
        let _planted = self.no_gate.set(RankedRwLock::default());
    }

    pub(crate) fn generation(&self) -> Generation {
        Generation::new(self.generation.load(Ordering::SeqCst))
    }

    /// Holds off the commit's critical section; waits while there is one.
    pub(crate) fn join(&self) -> Joined<'_> {
        #[cfg(feature = "faults")]
        if let Some(no_gate) = self.no_gate.get() {
            return no_gate.read_for(Reason::Commit, 0);
        }
        self.gate.mine().read_for(Reason::Commit, 0)
    }

    /// Waits until all handles have ended, and lets none begin.
    pub(crate) fn close(&self) -> ClosedGate<'_> {
        let parts = self.gate.all().zip(0..);
        let parts = parts.map(|(gate, part)| gate.write_for(Reason::Commit, part)).collect();
        ClosedGate { transaction: self, _parts: parts }
    }

    /// Adds written data that this transaction's metadata refers to (TXN-GATE-3).
    pub(crate) fn wrote(&self, written: Written) {
        add(&mut self.written.lock(), written);
    }

    /// Adds data written over data that trees show (TXN-GATE-4).
    pub(crate) fn overwrote(&self, written: Written) {
        add(&mut self.overwritten.lock(), written);
    }

    /// Takes the data written since the last flush, for a caller that flushes now. A caller that shows any of it asks for a flush after that.
    pub(crate) fn take_written(&self) -> Option<Written> {
        let mut written = self.written.lock().take();
        let overwritten = self.overwritten.lock().take();
        overwritten.into_iter().for_each(|more| add(&mut written, more));
        written
    }

    /// Checks that a handle of transaction `begun` ends in it (TXN-GATE-2).
    pub(crate) fn check_running(&self, begun: Generation) {
        let running = self.generation();
        assert_eq!(begun, running, "TXN-GATE-2: a handle of transaction {begun} ends in {running}");
    }

    /// Plants a fault: the next transaction begins beside handles of this one.
    #[cfg(feature = "faults")]
    pub(crate) fn begin_next_beside_handles(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Sets the phase of the commit on its way.
    pub(crate) fn enter(&self, phase: CommitPhase) {
        self.phase.enter(phase);
    }

    /// The cell with the abort, if all writing has ended.
    pub(crate) fn aborts(&self) -> &AbortCell {
        &self.aborts
    }

    /// Stops all writing for good.
    pub(crate) fn abort(&self, error: &Error, place: &Location<'_>) {
        match panics::dying_of() {
            Some(panic) => self.abort_after_panic(&panic),
            None => self.abort_at(place.to_string(), error.to_string(), error.host()),
        }
    }

    /// Stops all writing for good after a panic in the middle of an operation: the state in memory may be inconsistent.
    pub(crate) fn abort_after_panic(&self, panic: &panics::Panic) {
        self.abort_at(panic.place.clone(), format!("a thread panicked: {}", panic.message), None);
    }

    fn abort_at(&self, place: String, reason: String, host: Option<std::io::ErrorKind>) {
        let abort = Abort { transaction: self.generation(), phase: self.phase.get(), place, reason };
        self.aborts.set(abort, host);
    }

    /// Aborts when `done` is an error.
    #[track_caller]
    pub(crate) fn or_abort<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.abort(error, Location::caller());
        }
        done
    }

    /// Checks that the transaction is not aborted. Errors: read-only: it is.
    pub(crate) fn check_not_aborted(&self) -> Result<()> {
        self.aborts.check()
    }
}

fn add(all: &mut Option<Written>, written: Written) {
    match all {
        Some(all) => all.add(written),
        none => *none = Some(written),
    }
}

/// Aborts when the thread that has this panics: no other thread may commit its half-done changes.
pub(crate) struct AbortsWhenItPanics<'t>(pub(crate) &'t Transaction);

impl Drop for AbortsWhenItPanics<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = Error::new(ErrorKind::Aborted, "a thread panicked during a commit");
            self.0.abort(&error, Location::caller());
        }
    }
}

impl ClosedGate<'_> {
    /// Takes the data to flush, if any was written.
    pub(crate) fn take_written(&self) -> Option<Written> {
        self.transaction.take_written()
    }

    /// Flushes data that was written without a change of metadata, when a caller asks for durability.
    pub(crate) fn flush_written(&self, volume: &Volume) -> Result<()> {
        let Some(written) = self.take_written() else { return Ok(()) };
        self.transaction.enter(CommitPhase::Flush);
        let _durable: Durable = volume.flush(written)?;
        Ok(())
    }

    /// Ends the transaction: a thread that joins from now on is part of the next one (TXN-GATE-2).
    pub(crate) fn begin_next(self) {
        let left = self.transaction.written.lock().is_some();
        assert!(!left, "TXN-GATE-3: what was written goes with its own transaction");
        self.transaction.generation.fetch_add(1, Ordering::SeqCst);
    }
}
