//! Other people's suites on the mount: `cargo xtask pjdfstest` and `cargo xtask fsx`. Both are programs that cargo
//! installs; none of their code is here.
//!
//! What the suites are expected to say stands in `docs/suites.toml`: the cases of pjdfstest that do not pass
//! here, each with its reason. A case that fails without standing there is a failure, and so is one that stands there
//! and passes: then the line goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{FuseMount, Program, Run, Scratch, btrfs_check};

use crate::workspace::{self, build_program};

const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");
const FSX: (&str, &str) = ("fsx", "0.3.2");
/// Users that pjdfstest acts as.
const USERS: [&str; 2] = ["fsgqa", "fsgqa2"];
const FSX_OPERATIONS: &str = "100000";
const FSX_SEEDS: [&str; 3] = ["1", "2", "3"];

const PJDFSTEST_SETTINGS: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["fsgqa", "fsgqa"], ["fsgqa2", "fsgqa2"]]
"#;

/// All operations that exist, fallocate and punched holes left out.
const FSX_SETTINGS: &str = "
flen = 262144
[opsize]
min = 0
max = 65536
align = 1
[weights]
close_open = 1.0
invalidate = 1.0
mapread = 10.0
mapwrite = 10.0
read = 10.0
write = 10.0
truncate = 10.0
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 0.0
punch_hole = 0.0
sendfile = 1.0
posix_fadvise = 1.0
copy_file_range = 3.0
";

/// Installs a suite with cargo into the target folder, once.
fn install((name, version): (&str, &str)) -> Result<PathBuf> {
    let root = workspace::target().join("suites");
    let program = root.join("bin").join(name);
    if !program.is_file() {
        println!("installing {name} {version}");
        let args = ["install", "--quiet", "--locked", name, "--version", version, "--root"];
        Run::new("cargo").args(args).arg(&root).ok().with_context(|| format!("installing {name}"))?;
    }
    Ok(program)
}

/// A mounted, empty filesystem and what it lies in.
struct Stage {
    scratch: Scratch,
    image: PathBuf,
    mount: FuseMount,
}

fn stage(name: &str) -> Result<Stage> {
    build_program()?;
    let program = Program::find()?;
    let scratch = Scratch::new(name)?;
    let image = scratch.file("disk.img");
    program.run(["mkfs", "-q", "-b", "2G"]).arg(&image).ok()?;
    let mount = FuseMount::mount(&program, &image, &scratch.file("mount"), "allow_other,suid,dev")?;
    Ok(Stage { scratch, image, mount })
}

/// pjdfstest, whole, as root.
pub(crate) fn pjdfstest() -> Result<()> {
    let program = install(PJDFSTEST)?;
    for user in USERS {
        if Run::new("id").arg(user).output()?.code != Some(0) {
            Run::new("useradd").args(["--create-home", user]).ok()?;
        }
    }
    let Stage { scratch, image, mount } = stage("pjdfstest")?;
    let settings = scratch.file("pjdfstest.toml");
    std::fs::write(&settings, PJDFSTEST_SETTINGS)?;
    let ran =
        Run::new(program).arg("-c").arg(&settings).arg("-p").arg(mount.dir()).within(mount.dir()).output()?;
    mount.unmount()?;
    btrfs_check(&image)?;
    judge(&ran.stdout_text())
}

/// Holds what pjdfstest printed against what is expected.
fn judge(said: &str) -> Result<()> {
    let expected = expected_failures()?;
    let mut counts = BTreeMap::new();
    let mut surprises = Vec::new();
    for line in said.lines() {
        let mut words = line.split_whitespace();
        let (Some(case), Some(outcome), None) = (words.next(), words.next(), words.next()) else { continue };
        if !case.contains("::") || !["ok", "FAILED", "skipped"].contains(&outcome) {
            continue;
        }
        *counts.entry(outcome).or_insert(0) += 1;
        match (outcome, expected.get(case)) {
            ("FAILED", None) => surprises.push(format!("{case} fails")),
            ("ok", Some(reason)) => surprises.push(format!("{case} passes, although {reason}")),
            _ => {}
        }
    }
    println!("pjdfstest {}: {counts:?}", PJDFSTEST.1);
    ensure!(counts.get("ok").is_some_and(|&passed| passed > 300), "pjdfstest did not run: {said}");
    ensure!(surprises.is_empty(), "{}", surprises.join("\n"));
    Ok(())
}

/// Cases that are known not to pass, with the reason.
fn expected_failures() -> Result<BTreeMap<String, String>> {
    let path = workspace::root().join("docs/suites.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let table: BTreeMap<String, BTreeMap<String, String>> = toml::from_str(&text)?;
    Ok(table.get("pjdfstest").cloned().unwrap_or_default())
}

/// fsx with three seeds, each on a fresh mount of the same image.
pub(crate) fn fsx() -> Result<()> {
    let program = install(FSX)?;
    let Stage { scratch, image, mount } = stage("fsx")?;
    let settings = scratch.file("fsx.toml");
    std::fs::write(&settings, FSX_SETTINGS)?;
    let mut mount = Some(mount);
    for seed in FSX_SEEDS {
        let mounted = match mount.take() {
            Some(mounted) => mounted,
            None => FuseMount::mount(&Program::find()?, &image, &scratch.file("mount"), "")?,
        };
        run_fsx(&program, &settings, seed, &mounted.dir().join("file"))?;
        mounted.unmount()?;
        btrfs_check(&image)?;
    }
    Ok(())
}

fn run_fsx(program: &Path, settings: &Path, seed: &str, file: &Path) -> Result<()> {
    let args = ["-S", seed, "-N", FSX_OPERATIONS, "-f"];
    let ran = Run::new(program).args(args).arg(settings).arg(file).output()?;
    if ran.code != Some(0) {
        bail!("fsx with seed {seed}: {ran}");
    }
    println!("fsx {}: seed {seed}, {FSX_OPERATIONS} operations agree", FSX.1);
    Ok(())
}
