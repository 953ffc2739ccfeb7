//! The program as one static file, in the profile `dist`.
//!
//! It is linked with musl, whose allocator is optimised for size. So the program has another allocator for this target
//! (`crates/cli/src/main.rs`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use creamery_testkit::{Judge, Judges, Run};

use crate::install::install_packages;
use creamery_workspace::{cargo, root, run, target};

pub(super) const TARGET: &str = "x86_64-unknown-linux-musl";
/// The maximum size of the program, bytes.
const LEN_MAX: u64 = 8 << 20;
/// Packs the addresses that the program relocates at its start: a bit each in place of 24 bytes, which saves 150 KB. musl reads this
/// format.
const PACKED_RELOCATIONS: &str = "-Clink-arg=-Wl,-z,pack-relative-relocs";

/// Omits unwind tables of C code, as no panic passes through it.
const WITHOUT_UNWINDING: &str = "-fno-asynchronous-unwind-tables -fno-unwind-tables";

/// Builds the program and checks it, unless `CREAMERY_BIN` names another one.
pub(crate) fn build() -> Result<PathBuf> {
    if let Some(other) = std::env::var_os("CREAMERY_BIN") {
        println!("xtask: CREAMERY_BIN is set, packing {}", other.to_string_lossy());
        return Path::new(&other).canonicalize().context("the program that CREAMERY_BIN names");
    }
    install_target()?;
    if Judges::here().missing(Judge::Tool("musl-gcc")).is_some() {
        install_packages(&["musl-tools"])?;
    }
    let mut build =
        cargo(&["build", "--profile", "dist", "--locked", "--package", "creamery", "--target", TARGET]);
    // Panic messages have names of source files. The paths of this machine do not belong in them.
    let mut flags: Vec<String> =
        here()?.iter().map(|(path, name)| format!("--remap-path-prefix={}={name}", path.display())).collect();
    flags.push(PACKED_RELOCATIONS.to_owned());
    flags.extend(folding()?);
    build.env("CFLAGS_x86_64_unknown_linux_musl", WITHOUT_UNWINDING);
    run(build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")))?;
    let built = target().join(TARGET).join("dist/creamery").canonicalize()?;
    // The names of functions are still in it, although the profile strips them. The file keeps its name, as its own messages and the
    // process name are checked.
    let folder = built.with_file_name("stripped");
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("creamery");
    Run::new("strip").args(["--strip-all", "-o"]).arg(&program).arg(&built).ok()?;
    examine(&program)?;
    Ok(program)
}

/// Makes the toolchain's own linker fold functions of equal bytes into one, which saves 90 KB. A toolchain without that linker links as
/// usual.
fn folding() -> Result<Vec<String>> {
    let said = rustc(&["--print", "sysroot"])?;
    let host = rustc(&["--print", "host-tuple"])?;
    let linkers = Path::new(&said).join("lib/rustlib").join(host).join("bin/gcc-ld");
    if !linkers.join("ld.lld").is_file() {
        println!("xtask: {} has no ld.lld, so equal functions are not folded", linkers.display());
        return Ok(Vec::new());
    }
    let linkers = format!("-Clink-arg=-B{}", linkers.display());
    Ok(vec!["-Clink-arg=-fuse-ld=lld".to_owned(), linkers, "-Clink-arg=-Wl,--icf=all".to_owned()])
}

/// The output of the compiler, without the final line break.
fn rustc(words: &[&str]) -> Result<String> {
    let said = Command::new("rustc").args(words).current_dir(root()).output().context("asking rustc")?;
    ensure!(said.status.success(), "rustc {}: {}", words.join(" "), said.status);
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

/// Installs the standard library for the target, if rustup manages the toolchain.
pub(crate) fn install_target() -> Result<()> {
    // A toolchain without the target gives an error.
    let libraries = rustc(&["--print", "target-libdir", "--target", TARGET]);
    if libraries.is_ok_and(|libraries| Path::new(&libraries).is_dir()) {
        return Ok(());
    }
    println!("xtask: rustup target add {TARGET}");
    run(Command::new("rustup").args(["target", "add", TARGET]).current_dir(root()))
}

/// Paths of this machine, and their replacements in the program.
fn here() -> Result<[(PathBuf, &'static str); 2]> {
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    Ok([(cargo_home.context("no home folder")?, "/cargo"), (root(), "/creamery")])
}

fn examine(program: &Path) -> Result<()> {
    let bytes = std::fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let len = u64::try_from(bytes.len())?;
    ensure!(len <= LEN_MAX, "the program has {len} bytes, and {LEN_MAX} are the most that it may have");
    let structure = Run::new("readelf").args(["-W", "-l", "-d"]).arg(program).ok()?.stdout_text();
    let dynamic = structure.lines().find(|line| line.contains("INTERP") || line.contains("(NEEDED)"));
    ensure!(dynamic.is_none(), "the program is not static: {}", dynamic.unwrap_or_default());
    for (path, _) in here()? {
        let path = path.as_os_str().as_encoded_bytes();
        let there = bytes.windows(path.len()).any(|window| window == path);
        ensure!(!there, "the program has {} in it", String::from_utf8_lossy(path));
    }
    println!("a static program of {len} bytes, {LEN_MAX} at most");
    Ok(())
}
