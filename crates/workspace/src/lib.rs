//! The source tree: paths in it, and calls of cargo. For the project's own commands, which share them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The root of the source tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    here.canonicalize().unwrap_or(here)
}

/// The folder of build results.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command of cargo's, started in the root.
pub fn cargo(args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// The words of cargo, with options that build the whole workspace as for its tests: building programs and documentation with them compiles
/// no crate of the engine again.
pub fn with_faults<'w>(words: &[&'w str]) -> Vec<&'w str> {
    [words, &["--workspace", "--features", "creamery-sim/faults", "--locked"]].concat()
}

/// Runs a command and fails if it does not succeed.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = format!("{} {}", command.get_program().to_string_lossy(), words(command).join(" "));
    let status = command.status().with_context(|| format!("starting {shown}"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

fn words(command: &Command) -> Vec<String> {
    command.get_args().map(|word| word.to_string_lossy().into_owned()).collect()
}

/// Builds the program in the release profile, unless `CREAMERY_BIN` names another one.
pub fn build_program() -> Result<()> {
    if other_program().is_some() {
        return Ok(());
    }
    run(&mut cargo(&["build", "--release", "--locked", "--bin", "creamery"]))
}

/// Builds the tested program in the profile `ci`: optimised, but not across crates. Returns its path, or the one in `CREAMERY_BIN`.
pub fn build_tested() -> Result<PathBuf> {
    if let Some(other) = other_program() {
        return Ok(other);
    }
    run(&mut cargo(&["build", "--profile", "ci", "--locked", "--bin", "creamery"]))?;
    Ok(target().join("ci/creamery"))
}

fn other_program() -> Option<PathBuf> {
    let other = std::env::var_os("CREAMERY_BIN").map(PathBuf::from)?;
    println!("xtask: CREAMERY_BIN is set, looking at {}", other.display());
    Some(other)
}

/// `cargo metadata` of the whole workspace, dependencies included.
pub fn metadata() -> Result<Value> {
    told(&mut cargo(&["metadata", "--format-version", "1", "--locked"]))
}

/// `cargo metadata` of the dependencies for `target` alone.
pub fn metadata_for(target: &str) -> Result<Value> {
    told(&mut cargo(&["metadata", "--format-version", "1", "--locked", "--filter-platform", target]))
}

fn told(metadata: &mut Command) -> Result<Value> {
    let output = metadata.output().context("starting cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("reading what cargo metadata says")
}

/// All files below `dir` (relative to the root) whose names end in one of `endings`, sorted, without build results.
pub fn files(dir: &str, endings: &[&str]) -> Result<Vec<PathBuf>> {
    let root = root();
    let mut waiting = vec![root.join(dir)];
    let mut found = Vec::new();
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_dir() && name != "target" && name != ".git" {
                waiting.push(path);
            } else if kind.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path.strip_prefix(&root)?.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file given relative to the root.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = root().join(path);
    std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}
