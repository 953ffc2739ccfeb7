//! `bench requests`: how many requests daily work on a mount takes, of which kinds, and with `--beside PROGRAM` how many it
//! takes another build of the program. Every run has a fresh filesystem; the programs take turns; times are medians, and
//! requests those of the last run: `creamery stats` counts them, before and after.
//!
//! Back of the envelope: a request is 10 to 40 us of the way and 1 to 4 us of work, so what is not asked is what is saved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use creamery_testkit::{CpuMeter, Judge, Judges, Program, Run, Scratch, btrfs_check, tree};
use serde_json::Value;

use super::library::empty_image;
use super::measure::median;
use super::options::{BesideOptions, options};
use super::report::told;
use super::server::Server;
use creamery_workspace::build_program;

const IMAGE_BYTES: u64 = 8 << 30;
const LIMIT: Duration = Duration::from_secs(600);
/// Kinds with a smaller share of the requests are counted and not named.
const NAMED_FROM: f64 = 0.005;

/// What is done, as the shell does it: `$S` is the tree, `$A` an archive of it, `$O` a folder beside the mount, `$M` the mount.
const WORK: [(&str, &str); 8] = [
    ("copy a tree in", "cp -r $S $M/tree"),
    ("list its names", "find $M/tree"),
    ("list it, `ls -lR`", "ls -lR $M/tree"),
    ("the same again", "ls -lR $M/tree"),
    ("copy it out", "cp -r $M/tree $O/tree"),
    ("remove it", "rm -r $M/tree"),
    ("unpack its archive", "mkdir $M/new && tar -xf $A -C $M/new"),
    ("dbench, 16 clients, 20 s", "mkdir $M/dbench && dbench -D $M/dbench -t 20 16"),
];

#[derive(Clone, Default)]
struct RequestsTaken {
    time: f64,
    cpu: f64,
    /// What dbench says it moved, MB/s.
    rate: Option<f64>,
    requests: BTreeMap<String, u64>,
}

/// One program, and what it took for each work, run by run.
struct RequestsProgram {
    name: &'static str,
    program: PathBuf,
    taken: [Vec<RequestsTaken>; WORK.len()],
}

/// `cargo xtask bench requests`.
pub(crate) fn requests(words: &[&str]) -> Result<()> {
    let (beside, words) = beside(words)?;
    let usual = BesideOptions { files: 50_000, bytes: 200 << 20, runs: 3, dry: true };
    let options = options(usual, &words)?;
    for judge in [Judge::Root, Judge::Fuse, Judge::BtrfsProgs, Judge::Tool("dbench")] {
        if let Some(missing) = Judges::here().missing(judge) {
            bail!("bench requests works on a mount: {judge} is missing ({missing})");
        }
    }
    build_program()?;
    let place = RequestsStage::new(&options)?;
    let ours = Program::find()?.path().to_owned();
    let programs = beside.map(|program| ("before", program)).into_iter().chain([("now", ours)]);
    let mut sides: Vec<RequestsProgram> = programs
        .map(|(name, program)| RequestsProgram { name, program, taken: Default::default() })
        .collect();
    for round in 1..=options.runs {
        for side in &mut sides {
            println!("  run {round}, {}", side.name);
            place.run(side).with_context(|| side.program.display().to_string())?;
        }
    }
    println!("\n{}", told(&table(&sides)));
    Ok(())
}

/// The program after `--beside`, and the other words.
fn beside<'w>(words: &[&'w str]) -> Result<(Option<PathBuf>, Vec<&'w str>)> {
    let Some(at) = words.iter().position(|word| *word == "--beside") else { return Ok((None, words.into())) };
    let program = words.get(at + 1).context("--beside needs a program")?;
    let program = Path::new(program).canonicalize().with_context(|| (*program).to_owned())?;
    Ok((Some(program), [&words[..at], &words[at + 2..]].concat()))
}

struct RequestsStage {
    scratch: Scratch,
    source: PathBuf,
    archive: PathBuf,
}

impl RequestsStage {
    fn new(options: &BesideOptions) -> Result<Self> {
        let scratch = Scratch::new("bench-requests")?;
        let (source, archive) = (scratch.dir("source")?, scratch.file("archive"));
        tree::generate(&source, options.files, options.bytes, 1)?;
        Run::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&source).arg(".").limit(LIMIT).ok()?;
        Ok(Self { scratch, source, archive })
    }

    /// All the work, on a fresh filesystem, which has to be right at the end.
    fn run(&self, side: &mut RequestsProgram) -> Result<()> {
        let (image, mount, out) =
            (self.scratch.file("image"), self.scratch.dir("mount")?, self.scratch.dir("out")?);
        empty_image(&image, IMAGE_BYTES)?;
        Run::new(&side.program).args(["mkfs", "-q", "-f"]).arg(&image).ok()?;
        let mut command = Command::new(&side.program);
        let server = Server::start(command.args(["mount", "--foreground"]).arg(&image).arg(&mount), &mount)?;
        for (column, (name, script)) in WORK.into_iter().enumerate() {
            let before = counted(&side.program, &mount)?;
            let cpu = CpuMeter::start(&[server.id()])?;
            let start = Instant::now();
            let run = Run::new("sh").args(["-c", script]).env("S", &self.source).env("A", &self.archive);
            let run = run.env("O", &out).env("M", &mount).limit(LIMIT);
            let said = run.ok().context(name)?.stdout_text();
            let (time, cpu) = (start.elapsed().as_secs_f64(), cpu.elapsed()?.as_secs_f64());
            let mut requests = counted(&side.program, &mount)?;
            for (kind, count) in &mut requests {
                *count -= before.get(kind).copied().unwrap_or_default();
            }
            requests.remove("ioctl"); // counting
            side.taken[column].push(RequestsTaken { time, cpu, rate: rate_of(&said), requests });
        }
        server.end()?;
        std::fs::remove_dir_all(&out)?;
        btrfs_check(&image)
    }
}

/// What dbench has moved, MB/s.
fn rate_of(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("Throughput "))?;
    line.split_whitespace().next()?.parse().ok()
}

fn counted(program: &Path, mount: &Path) -> Result<BTreeMap<String, u64>> {
    let said = Run::new(program).args(["stats", "--json"]).arg(mount).ok()?.stdout_text();
    let said: Value = serde_json::from_str(&said).context("reading the statistics")?;
    let kinds =
        said.pointer("/requests").and_then(Value::as_object).context("no requests in the statistics")?;
    Ok(kinds.iter().map(|(kind, seen)| (kind.clone(), seen["count"].as_u64().unwrap_or_default())).collect())
}

/// The kinds that matter, the most frequent first.
fn kinds(requests: &BTreeMap<String, u64>) -> String {
    let all: u64 = requests.values().sum();
    let mut named: Vec<(&str, u64)> = requests
        .iter()
        .filter(|(_, count)| **count as f64 >= (all as f64 * NAMED_FROM).max(1.0))
        .map(|(kind, count)| (&**kind, *count))
        .collect();
    named.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    named.iter().map(|(kind, count)| format!("{kind} {count}")).collect::<Vec<_>>().join(", ")
}

fn table(sides: &[RequestsProgram]) -> String {
    let mut text =
        String::from("| work | | requests | of these | time | CPU time |\n|---|---|---|---|---|---|\n");
    for (column, (name, _)) in WORK.into_iter().enumerate() {
        for side in sides {
            let taken = &side.taken[column];
            let Some(last) = taken.last() else { continue };
            let of =
                |figure: fn(&RequestsTaken) -> f64| median(&taken.iter().map(figure).collect::<Vec<_>>());
            let time = match last.rate {
                Some(_) => format!("{:.0} MB/s", of(|taken| taken.rate.unwrap_or_default())),
                None => format!("{:.2} s", of(|taken| taken.time)),
            };
            text += &format!(
                "| {name} | {} | {} | {} | {time} | {:.2} s |\n",
                side.name,
                last.requests.values().sum::<u64>(),
                kinds(&last.requests),
                of(|taken| taken.cpu)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_their_number_and_rare_ones_are_not() {
        let requests = [("lookup", 1000), ("create", 2000), ("statfs", 1), ("getattr", 0)];
        let requests = requests.map(|(kind, count)| (kind.to_owned(), count)).into();
        assert_eq!(kinds(&requests), "create 2000, lookup 1000");
    }

    #[test]
    fn both_programs_have_a_row_for_each_work() {
        let taken =
            RequestsTaken { time: 1.5, cpu: 0.25, rate: None, requests: [("read".to_owned(), 7)].into() };
        let side = |name| RequestsProgram {
            name,
            program: PathBuf::new(),
            taken: std::array::from_fn(|_| vec![taken.clone()]),
        };
        let text = table(&[side("before"), side("now")]);
        assert!(text.contains("| remove it | now | 7 | read 7 | 1.50 s | 0.25 s |\n"), "{text}");
        assert_eq!(text.lines().count(), 2 + 2 * WORK.len());
    }

    #[test]
    fn the_rate_is_dbenchs_and_the_program_is_taken_out_of_the_words() {
        assert_eq!(rate_of("x\nThroughput 245.301 MB/sec  16 clients\n"), Some(245.301));
        assert_eq!(rate_of(""), None);
        let (program, words) = beside(&["--files", "7", "--beside", "/bin/sh", "--runs", "1"]).unwrap();
        assert!(program.is_some());
        assert_eq!(words, ["--files", "7", "--runs", "1"]);
        assert!(beside(&["--beside"]).is_err());
    }
}
