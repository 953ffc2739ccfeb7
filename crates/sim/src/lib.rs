//! Simulation tests: power cuts, faults, and a model of the files, compared with the engine.
//!
//! [`SimDevice`] follows `docs/internals/media-assumptions.md` exactly, records its requests and fails on demand; in front of it [`Answering`] keeps requests until a test answers
//! them. [`Model`] is a filesystem in memory, [`Driver`] runs each [`Operation`] on both and compares the answers, and [`Snapshot`] is the result of a walk. These runs build on
//! them:
//!
//! | run | it shows that |
//! |---|---|
//! | [`random_run`], [`random_run_on`], [`random_run_with`] | results, kinds of error and files agree with the model; also on a full device |
//! | [`kernel_run`] | the model, and so the engine, agrees with the kernel |
//! | [`random_run_beside`], [`record_beside`], [`faulty_run_beside`] | results agree also with steps of the background in the middle of
//! operations |
//! | [`threads_run`] | threads on trees of their own agree with their own models |
//! | [`readers_run`] | reads beside writers and commits are whole and right; rotten data is never read as good |
//! | [`linearizable`] | the answers of threads in shared directories have an order that explains them |
//! | [`record`] and [`crash`] | after any [`PowerCut`] the device has the last durable commit or the one in flight, and work can go on |
//! | [`faulty_run`] | after any failing request the answers are right, or the filesystem is read-only with the reason, and nothing durable
//! is lost |
//! | [`FullRun`] | filesystems of random sizes and kinds that several writers fill have all accepted data |
//! | [`walk_damaged`] | damage is reported, and the rest is served |
//! | [`check_survivor`], [`mount_survivor`] | `btrfs check` and the kernel agree |
//! | [`campaign`] | the crash test holds at length |
//!
//! # Invariants
//! - SIM-1: everything follows from a seed, which stands in every message; only fresh seeds come from outside.
//! - SIM-2: the model, the log of the device, `check` (which shares no code with the engine's trees and transactions) and judges that are
//!   not ours decide what is right: never the engine.
//! - SIM-3: if a [`Canary`] breaks a promise, the run that finds nothing otherwise notices it.
//!   Shown by `a_device_that_ignores_a_flush_is_noticed`, `a_device_that_ignores_the_flush_of_a_log_is_noticed`.

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
pub use linearize::{Ask, Call, CallAnswer, linearizable};
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
