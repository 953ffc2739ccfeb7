//! Proof by simulation: power cuts, faults, and a model of the files to hold the engine against.
//!
//! [`SimDevice`] keeps `docs/internals/media-assumptions.md` to the letter, notes what is asked of it and fails where it is told
//! to; in front of it [`Answering`] keeps requests until it is told to answer them. [`Model`] is a filesystem in memory, [`Driver`] lets both do the same [`Operation`]s and compares the answers,
//! and [`Snapshot`] is what a walk sees. On these stand:
//!
//! | run | what it shows |
//! |---|---|
//! | [`random_run`], [`random_run_on`], [`random_run_with`] | results, kinds of error and files agree with the model; also on a full device |
//! | [`kernel_run`] | the model, and so the engine, agrees with the kernel |
//! | [`random_run_beside`], [`record_beside`], [`faulty_run_beside`] | the same with the background's steps in the midst of operations |
//! | [`threads_run`] | threads on trees of their own agree with their own models |
//! | [`readers_run`] | what is read while others write and commit is whole and right; what is rotten is never read as good |
//! | [`linearizable`] | what threads see of the same directories has an order that explains it |
//! | [`record`] and [`crash`] | whatever a [`PowerCut`] leaves is the last durable commit or the one in flight, and can be worked on |
//! | [`faulty_run`] | after any failing request there is a right answer, or it is read-only with the reason, and nothing durable is lost |
//! | [`FullRun`] | filesystems of random sizes and sorts that several writers fill have all that was accepted |
//! | [`walk_damaged`] | what is damaged is told, the rest is served |
//! | [`check_survivor`], [`mount_survivor`] | `btrfs check` and the kernel think so, too |
//! | [`campaign`] | the crash test at length |
//!
//! # Invariants
//! - SIM-1: everything follows from a seed, which stands in every message; only fresh seeds come from outside.
//! - SIM-2: what is right is decided by the model, by the log of the device, by `check`, which shares no code with the
//!   engine's trees and transactions, and by judges that are not ours: never by the engine.
//! - SIM-3: a [`Canary`] that breaks a promise is noticed by the same run that finds nothing else.

mod answering;
mod attributes;
mod beside;
mod campaign;
mod crash;
mod delayed_data;
mod device;
mod driver;
mod due;
mod faulty_run;
mod file_data;
mod fresh;
mod full_run;
mod host;
mod image;
mod in_place;
mod judge;
mod kernel_run;
mod linearize;
mod log_run;
mod log_states;
mod made_log;
mod mark;
mod model;
mod operation;
mod power_cut;
mod quotas;
mod random_run;
mod readers;
mod replay_run;
mod rights;
mod room_watch;
mod scrubbing;
mod seeds;
mod seen_errors;
mod shape;
mod snapshot;
mod subvolumes;
mod threads;
mod turns;
mod unread;
#[cfg(feature = "faults")]
mod unwaiting_run;
mod watch;
mod workload;

pub use answering::{Answering, MARKED};
pub use beside::{
    faulty_run_beside, faulty_run_beside_with, random_run_beside, record_beside, requests_of_a_run_beside,
};
pub use campaign::{Campaign, campaign};
pub use crash::{CrashReport, Survivor, crash, judge};
pub use device::{Canary, Fault, Kind, SimDevice};
pub use driver::{Driver, open};
pub use due::record_due;
pub use faulty_run::{FaultOutcome, faulty_run, requests_of_a_run};
pub use fresh::{MadeBy, fresh_image, image_with_files};
pub use full_run::FullRun;
pub use image::{Image, PAGE};
pub use in_place::{InPlaceReport, in_place_run, in_place_run_with};
pub use judge::{check_image, check_survivor, host_snapshot, kernel_image, mount_survivor};
pub use kernel_run::kernel_run;
pub use linearize::{Ask, Call, Told, linearizable};
pub use log_run::{LogReport, log_run, log_run_with};
pub use made_log::with_log;
pub use mark::Mark;
pub use model::{Model, ROOT};
pub use operation::{Operation, Outcome, Taste};
pub use power_cut::{Class, CutState, PowerCut};
pub use quotas::{ensure_counted, meddle_with_groups};
pub use random_run::{random_run, random_run_on, random_run_with};
pub use readers::{ReadersReport, readers_run, readers_run_with};
pub use replay_run::replay_run;
pub use room_watch::ensure_room_was_kept;
pub use scrubbing::Scrubbing;
pub use seeds::stored_seeds;
pub use snapshot::{Entry, Snapshot, hash_of, snapshot, walk_damaged};
pub use threads::threads_run;
#[cfg(feature = "faults")]
pub use unwaiting_run::{UnwaitingReport, unwaiting_run};
pub use watch::{Watch, watched};
pub use workload::{Features, History, record};
