//! Proof by simulation: power cuts, faults, and a model of the files.

mod campaign;
mod crash;
mod device;
mod driver;
mod faulty_run;
mod fresh;
mod image;
mod judge;
mod model;
mod operation;
mod power_cut;
mod random_run;
mod snapshot;
mod workload;

pub use campaign::{Campaign, campaign};
pub use crash::{CrashReport, Survivor, crash};
pub use device::{Canary, Fault, Kind, SimDevice};
pub use driver::{Driver, open};
pub use faulty_run::{FaultOutcome, faulty_run, requests_of_a_run};
pub use fresh::{MadeBy, fresh_image};
pub use image::{Image, PAGE};
pub use judge::{check_image, check_survivor, host_snapshot, kernel_image, mount_survivor};
pub use model::{Model, ROOT};
pub use operation::{Operation, Outcome, Taste};
pub use power_cut::{Class, CutState, PowerCut};
pub use random_run::{random_run, random_run_on};
pub use snapshot::{Entry, Snapshot, walk_damaged};
pub use workload::{Features, History, record};
