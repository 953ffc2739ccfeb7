//! The licences of everything that is linked, and where it comes from: cargo-deny, with what `deny.toml` allows.

use anyhow::Result;

use crate::workspace::{cargo, run, target};

/// Pinned as every tool is: a new one may find new faults, and that is to happen when somebody looks.
const VERSION: &str = "0.20.2";

/// Fails on licences that we cannot pass on, on crates from elsewhere, and on versions that are not said.
pub(crate) fn check() -> Result<()> {
    let tools = target().join("tools");
    let program = tools.join("bin/cargo-deny");
    let is_here = std::process::Command::new(&program)
        .arg("--version")
        .output()
        .is_ok_and(|told| told.stdout.ends_with(format!(" {VERSION}\n").as_bytes()));
    if !is_here {
        // It runs for a second: built without optimization, it is there minutes earlier.
        let fast = [("OPT_LEVEL", "0"), ("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "false")];
        let mut install = cargo(&["install", "cargo-deny", "--version", VERSION, "--locked", "--quiet"]);
        install.arg("--root").arg(&tools).arg("--target-dir").arg(tools.join("build"));
        install.envs(fast.map(|(name, value)| (format!("CARGO_PROFILE_RELEASE_{name}"), value)));
        run(&mut install)?;
    }
    run(std::process::Command::new(program).current_dir(crate::workspace::root()).args([
        "--locked",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]))
}
