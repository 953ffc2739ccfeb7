//! What the registry would be given: every published crate is packed, and nothing is sent.

use anyhow::Result;

use creamery_workspace::{cargo, run};

/// As far as it goes without the right to publish. That it builds is the tests' business: the crates are packed of the files that these have.
pub(crate) fn try_publishing() -> Result<()> {
    let words =
        ["publish", "--workspace", "--dry-run", "--no-verify", "--locked", "--allow-dirty", "--quiet"];
    run(&mut cargo(&words))
}
