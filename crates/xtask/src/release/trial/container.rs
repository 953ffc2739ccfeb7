//! The container: its root folder as the Containerfile describes it, without the programs that build containers. They would
//! do no more, and hosts of tests have none that runs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{Run, Scratch};

use super::super::container::{FILE, path};
use super::super::parts::Parts;
use super::bare::Bare;

pub(super) fn tried(_: &Parts, out: &Path) -> Result<()> {
    let context = Scratch::new("container-context")?;
    Run::new("tar")
        .arg("--extract")
        .arg("--file")
        .arg(path(out))
        .arg("--directory")
        .arg(context.path())
        .ok()?;
    let bare = Bare::new("container-root")?;
    let described = fs::read_to_string(context.path().join(FILE))?;
    let program = build(&described, context.path(), &bare)?;
    bare.work(&program)
}

/// Does what the lines say. Gives the program that is started.
fn build(described: &str, context: &Path, bare: &Bare) -> Result<String> {
    let mut program = None;
    for line in described.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["FROM", "scratch"] => {}
            ["COPY", from, to] => {
                let to = bare.outside(to);
                fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
                Run::new("cp").arg("-R").arg(context.join(from)).arg(to).ok()?;
            }
            ["WORKDIR", dir] => fs::create_dir_all(bare.outside(dir))?,
            ["ENTRYPOINT", word] => program = Some(entry(word)?),
            _ => bail!("{FILE} has a line that is not known here: {line}"),
        }
    }
    program.context("nothing is started")
}

/// The one word of a list in JSON.
fn entry(word: &str) -> Result<String> {
    let words: Vec<String> = serde_json::from_str(word).with_context(|| format!("reading {word}"))?;
    ensure!(words.len() == 1, "more is started than the program: {word}");
    words.into_iter().next().context("nothing is started")
}
