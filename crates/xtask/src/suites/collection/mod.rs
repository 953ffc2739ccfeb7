//! `cargo xtask collection --checkout DIR [--beside DIR].. [CASE..]`: the images that others test their programs with.
//!
//! Each image in a checkout of btrfs-progs is restored in a scratch folder. `btrfs check` and `creamery check` say what they
//! think of it, and both are held against `docs/coverage/suite-btrfs-progs.toml`, where the authors' own verdict stands.
//! Whatever the verdict, every reader of ours has to come to an end on every image: no panic, no hang, no memory. And what Linux can
//! mount and read, of these and of the images of other projects (`--beside`), we show as Linux does.

mod image;
mod list;
mod readers;
mod shown;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{Program, Run, Scratch};

use self::image::{find_cases, find_elsewhere, restore};
use self::list::{List, Opinions, Verdict};
use self::shown::{Shown, compare};
use creamery_workspace::build_program;

/// What the command line asks for.
struct CollectionOptions {
    checkout: PathBuf,
    /// Checkouts of other projects.
    beside: Vec<PathBuf>,
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
    let is_wanted =
        |case: &str| wanted.filters.is_empty() || wanted.filters.iter().any(|filter| case.contains(filter));
    let mut opinions = BTreeMap::new();
    let (mut broke, mut same) = (Vec::new(), 0);
    let mut look = |place: &Path, case: &str| -> Result<Opinions> {
        let judged = judge(place, case, &program).with_context(|| case.to_owned())?;
        let shown = list.without_known_difference(case, judged.shown);
        same += usize::from(shown == Ok(Shown::Same));
        let complaints = judged.complaints.into_iter().chain(shown.err().into_iter().flatten());
        broke.extend(complaints.map(|complaint| format!("{case}: {complaint}")));
        Ok(judged.opinions)
    };
    for case in find_cases(&tests)?.into_iter().filter(|case| is_wanted(case)) {
        opinions.insert(case.clone(), look(&tests, &case)?);
    }
    for place in &wanted.beside {
        for case in find_elsewhere(place)?.into_iter().filter(|case| is_wanted(case)) {
            println!("{case}: {:?}", look(place, &case)?);
        }
    }
    println!("{same} images are read whole by Linux, and show the same through us");
    list.hold_against(&opinions, wanted.filters.is_empty(), broke)
}

fn parse(words: &[&str]) -> Result<CollectionOptions> {
    let (mut checkout, mut beside, mut filters) = (None, Vec::new(), Vec::new());
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--checkout" => {
                checkout = Some(Path::new(words.next().context("--checkout wants a folder")?).canonicalize()?)
            }
            "--beside" => {
                beside.push(Path::new(words.next().context("--beside wants a folder")?).canonicalize()?)
            }
            case if !case.starts_with('-') => filters.push(case.to_owned()),
            other => bail!("unknown option {other}"),
        }
    }
    let checkout =
        checkout.context("--checkout DIR names a folder with btrfs-progs (git clone; no need to build)")?;
    Ok(CollectionOptions { checkout, beside, filters })
}

/// What was found of one image.
struct Judged {
    opinions: Opinions,
    shown: Result<Shown, Vec<String>>,
    /// What our readers did that they must not do.
    complaints: Vec<String>,
}

/// Looks at the image `case` below `place` in all ways.
fn judge(place: &Path, case: &str, program: &Program) -> Result<Judged> {
    let scratch = Scratch::new("collection")?;
    let image = scratch.file("disk.img");
    restore(&place.join(case), &image)?;
    let theirs = Run::new("btrfs").arg("check").arg(&image).output()?;
    let (ours, mut complaints) = readers::check(program, &image);
    complaints.extend(readers::others(program, &image));
    let shown = compare(case, &image, program, &scratch);
    let theirs = if theirs.code == Some(0) { Verdict::Clean } else { Verdict::Broken };
    Ok(Judged { opinions: Opinions { theirs, ours }, shown, complaints })
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
