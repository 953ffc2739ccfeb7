//! Planted faults: each harness finds the fault that it exists for, and each assert of an invariant fires.

mod canaries;
mod invariants;
mod nocow_beside;
mod unwaiting;

#[path = "../support/refill.rs"]
mod refill;
#[path = "../support/steps.rs"]
mod steps;
