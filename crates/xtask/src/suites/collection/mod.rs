//! `cargo xtask collection --checkout DIR [CASE..]`: the images that btrfs-progs' authors test their own check with.
//!
//! Each image in a checkout of btrfs-progs is restored in a scratch folder. `btrfs check` and `creamery check` say what they
//! think of it, and both are held against `docs/coverage/suite-btrfs-progs.toml`, where the authors' own verdict stands.
//! Whatever the verdict, every reader of ours has to come to an end on every image: no panic, no hang, no memory.

mod image;
mod list;
mod readers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{Program, Run, Scratch};

use self::image::{find_cases, restore};
use self::list::{List, Opinions, Verdict};
use crate::workspace::build_program;

/// What the command line asks for.
struct Wanted {
    checkout: PathBuf,
    /// Parts of names; none means all cases.
    filters: Vec<String>,
}

/// `cargo xtask collection`.
pub(crate) fn collection(words: &[&str]) -> Result<()> {
    let wanted = parse(words)?;
    let tests = wanted.checkout.join("tests");
    ensure!(tests.join("fsck-tests").is_dir(), "no btrfs-progs in {}", wanted.checkout.display());
    let list = List::read()?;
    build_program()?;
    let program = Program::find()?;
    let mut opinions = BTreeMap::new();
    let mut broke = Vec::new();
    for case in find_cases(&tests)? {
        if !wanted.filters.is_empty() && !wanted.filters.iter().any(|filter| case.contains(filter)) {
            continue;
        }
        let (opinion, complaints) = judge(&tests, &case, &program).with_context(|| case.clone())?;
        broke.extend(complaints.into_iter().map(|complaint| format!("{case}: {complaint}")));
        opinions.insert(case, opinion);
    }
    list.hold_against(&opinions, wanted.filters.is_empty(), broke)
}

fn parse(words: &[&str]) -> Result<Wanted> {
    let (mut checkout, mut filters) = (None, Vec::new());
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--checkout" => {
                checkout = Some(Path::new(words.next().context("--checkout wants a folder")?).canonicalize()?)
            }
            case if !case.starts_with('-') => filters.push(case.to_owned()),
            other => bail!("unknown option {other}"),
        }
    }
    let checkout =
        checkout.context("--checkout DIR names a folder with btrfs-progs (git clone; no need to build)")?;
    Ok(Wanted { checkout, filters })
}

/// What both say of one case, and what our readers did that they must not do.
fn judge(tests: &Path, case: &str, program: &Program) -> Result<(Opinions, Vec<String>)> {
    let scratch = Scratch::new("collection")?;
    let image = scratch.file("disk.img");
    restore(&tests.join(case), &image)?;
    let theirs = Run::new("btrfs").arg("check").arg(&image).output()?;
    let (ours, mut complaints) = readers::check(program, &image);
    complaints.extend(readers::others(program, &image));
    let theirs = if theirs.code == Some(0) { Verdict::Clean } else { Verdict::Broken };
    Ok((Opinions { theirs, ours }, complaints))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_checkout_is_wanted() {
        assert!(parse(&["fsck-tests/001"]).is_err());
        let wanted = parse(&["--checkout", "/", "fsck-tests/001"]).unwrap();
        assert_eq!(wanted.filters, ["fsck-tests/001"]);
        assert!(parse(&["--checkout", "/", "--what"]).is_err());
    }
}
