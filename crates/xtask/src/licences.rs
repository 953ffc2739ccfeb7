//! The licences of everything that is linked, and where it comes from: cargo-deny, with what `deny.toml` allows.

use anyhow::Result;

use crate::tools::installed;
use creamery_workspace::{root, run};

/// Fails on licences that we cannot pass on, on crates from elsewhere, and on versions that are not said.
pub(crate) fn check() -> Result<()> {
    let program = installed(("cargo-deny", "0.20.2"))?;
    let words = ["--locked", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"];
    run(std::process::Command::new(program).current_dir(root()).args(words))
}
