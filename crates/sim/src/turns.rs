//! Background work beside operations: two threads of which one runs at a time, in an order that follows from a seed.
//!
//! Whenever one of them asks something of the device or takes a lock, the turn may go to the other one; when the lock is taken,
//! it must. So a commit closes, a cleaner deletes and delayed refs run in the midst of an operation that goes on later, each
//! time in the same place.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use creamery_base::gate::{Chance, Turns, may_turn, take_turns};
use creamery_testkit::Random;
use creamery_txn::Engine;

/// One place in so many is one where the other goes on.
fn odds(chance: Chance) -> u64 {
    match chance {
        Chance::Lock => 150,
        Chance::Request => 3,
    }
}

/// Turns in a row in which neither gets on: a deadlock.
const STUCK: usize = 1000;

/// What the background says when it gives the turn back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    /// In the midst of a step.
    GoesOn,
    /// It waits for something that the other has.
    Waits,
    /// The step is over.
    Done,
    /// Nothing is due.
    Idle,
}

/// A thread that takes an engine's background steps while this one lets it.
pub(crate) struct Beside {
    turns: Rc<Operations>,
    thread: Option<JoinHandle<()>>,
}

/// The side of the operations.
struct Operations {
    random: RefCell<Random>,
    /// None when it has ended.
    give: RefCell<Option<Sender<()>>>,
    back: Receiver<Said>,
    /// Steps that ended.
    steps: Cell<u64>,
    /// How often a step was left in its midst.
    within: Cell<u64>,
    stuck: Cell<usize>,
}

/// The side of the background.
struct Background {
    random: RefCell<Random>,
    turn: Receiver<()>,
    say: Sender<Said>,
}

impl Beside {
    /// Begins with nothing due.
    pub(crate) fn begin(engine: &Arc<Engine>, seed: u64) -> Self {
        let (give, turn) = channel();
        let (say, back) = channel();
        let engine = Arc::clone(engine);
        let run = move || {
            let random = RefCell::new(Random::new(!seed));
            let background = Rc::new(Background { random, turn, say });
            background.run(&engine);
        };
        let turns = Operations {
            random: RefCell::new(Random::new(seed)),
            give: RefCell::new(Some(give)),
            back,
            steps: Cell::new(0),
            within: Cell::new(0),
            stuck: Cell::new(0),
        };
        Self { turns: Rc::new(turns), thread: Some(std::thread::spawn(run)) }
    }

    /// Runs `work`, with background steps before, within and after it.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let turns: Rc<dyn Turns> = Rc::<Operations>::clone(&self.turns);
        take_turns(turns, || {
            may_turn(Chance::Request);
            let done = work();
            may_turn(Chance::Request);
            done
        })
    }

    /// Runs `work` while nobody else runs, in whatever state that leaves the background. A turn goes away only for a lock that is taken; true when one
    /// did.
    #[cfg(feature = "faults")]
    pub(crate) fn run_alone<T>(&self, work: impl FnOnce() -> T) -> (T, bool) {
        let alone = Rc::new(Alone { turns: Rc::clone(&self.turns), has_turned: Cell::new(false) });
        let turns: Rc<dyn Turns> = Rc::<Alone>::clone(&alone);
        let done = take_turns(turns, work);
        (done, alone.has_turned.get())
    }

    /// Lets the step end that goes on, if one does. How many have ended, and how often one was interrupted.
    pub(crate) fn end(mut self) -> (u64, u64) {
        while let Some(said @ (Said::GoesOn | Said::Waits)) = self.turns.turn() {
            assert!(!self.turns.is_stuck(said), "a step waits for what nobody has");
        }
        let counts = (self.turns.steps.get(), self.turns.within.get());
        self.join();
        counts
    }

    fn join(&mut self) {
        self.turns.give.take();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "the background thread panicked");
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.join();
    }
}

impl Operations {
    /// Gives the turn away until it comes back.
    fn turn(&self) -> Option<Said> {
        self.give.borrow().as_ref()?.send(()).ok()?;
        let said = self.back.recv().ok()?;
        self.steps.set(self.steps.get() + u64::from(said == Said::Done));
        self.within.set(self.within.get() + u64::from(said == Said::GoesOn));
        Some(said)
    }

    /// Whether the other one has only waited for very many turns.
    fn is_stuck(&self, said: Said) -> bool {
        self.stuck.set(if said == Said::Waits { self.stuck.get() + 1 } else { 0 });
        self.stuck.get() > STUCK
    }
}

impl Turns for Operations {
    fn may_turn(&self, chance: Chance) {
        if self.random.borrow_mut().below(odds(chance)) == 0 {
            self.turn();
        }
    }

    fn must_turn(&self) -> bool {
        match self.turn() {
            Some(Said::Idle) | None => false,
            Some(said) => !self.is_stuck(said),
        }
    }
}

/// The side of the operations, where nothing is to happen meanwhile.
#[cfg(feature = "faults")]
struct Alone {
    turns: Rc<Operations>,
    has_turned: Cell<bool>,
}

#[cfg(feature = "faults")]
impl Turns for Alone {
    fn may_turn(&self, _: Chance) {}

    fn must_turn(&self) -> bool {
        self.has_turned.set(true);
        self.turns.must_turn()
    }
}

impl Background {
    fn run(self: Rc<Self>, engine: &Arc<Engine>) {
        let turns: Rc<dyn Turns> = Rc::<Self>::clone(&self);
        take_turns(turns, || {
            while self.turn.recv().is_ok() {
                let choose = |count: usize| {
                    usize::try_from(self.random.borrow_mut().below(count as u64)).expect("below a usize")
                };
                let said = match engine.background_step(choose) {
                    Some(_) => Said::Done,
                    None => Said::Idle,
                };
                if self.say.send(said).is_err() {
                    return;
                }
            }
        });
    }

    /// Gives the turn back until it comes again. When it never does, the rest of the step is nobody's business.
    fn pause(&self, said: Said) {
        if self.say.send(said).is_ok() {
            let _ = self.turn.recv();
        }
    }
}

impl Turns for Background {
    fn may_turn(&self, chance: Chance) {
        if self.random.borrow_mut().below(odds(chance)) == 0 {
            self.pause(Said::GoesOn);
        }
    }

    fn must_turn(&self) -> bool {
        self.pause(Said::Waits);
        true
    }
}
