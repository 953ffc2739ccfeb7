//! What all packages are made of.

use std::path::PathBuf;

use anyhow::{Context, Result};
use creamery_testkit::Run;

use super::{binary, third_party};
use creamery_workspace::root;

/// Of all packages of the workspace.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What differs from one release to the next.
pub(super) struct Parts {
    /// The static program.
    pub(super) program: PathBuf,
    /// The time that everything in the packages has, in seconds since 1970.
    pub(super) epoch: u64,
    /// What the licences of others ask to be handed on.
    pub(super) third_party: String,
}

impl Parts {
    pub(super) fn gather() -> Result<Self> {
        Ok(Self { program: binary::build()?, epoch: epoch()?, third_party: third_party::texts()? })
    }
}

fn epoch() -> Result<u64> {
    let said = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(said) => said,
        Err(_) => Run::new("git").args(["log", "-1", "--format=%ct"]).within(root()).ok()?.stdout_text(),
    };
    said.trim().parse().with_context(|| format!("{said:?} is not a time in seconds since 1970"))
}
