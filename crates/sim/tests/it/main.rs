//! The engine on simulated devices: models, power cuts, faults of the device, threads and full devices.
//!
//! One file a subject. The files that need planted faults are `tests/faults`; those that count the heap are `tests/memory`; those that
//! need the kernel or btrfs-progs are `tests/judged`; those that run under a scheduler are `tests/schedules`.

mod background;
mod commit_faults;
mod crash;
mod faults;
mod fsid_change;
mod full;
mod in_place;
mod log;
mod log_puts;
mod log_threads;
mod model;
mod quotas;
mod races;
mod readers;
mod replay;
mod rot;
mod scrub;
mod scrub_beside;
mod space;
mod threads;

#[path = "../support/refill.rs"]
mod refill;
#[path = "../support/steps.rs"]
mod steps;
#[path = "../support/untyped.rs"]
mod untyped;
