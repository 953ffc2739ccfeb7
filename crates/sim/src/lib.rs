//! Proof by simulation: power cuts, faults, and a model of the files.

mod crash;
mod device;
mod driver;
mod fresh;
mod image;
mod model;
mod operation;
mod power_cut;
mod random_run;
mod snapshot;
mod workload;

pub use crash::{CrashReport, Survivor, crash};
pub use device::{Canary, Fault, Kind, SimDevice};
pub use driver::{Driver, open};
pub use fresh::{MadeBy, fresh_image};
pub use image::{Image, PAGE};
pub use model::{Model, ROOT};
pub use operation::{Operation, Outcome, Taste};
pub use power_cut::{Class, CutState, PowerCut};
pub use random_run::random_run;
pub use snapshot::{Entry, Snapshot};
pub use workload::{Features, History, record};
