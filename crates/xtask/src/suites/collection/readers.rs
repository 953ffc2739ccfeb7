//! Our readers on an image that may be anything: each has to come to an end of its own, in time, within memory.

use std::path::Path;
use std::time::Duration;

use creamery_testkit::{Finished, Program, Run};
use serde_json::Value;

use super::list::Verdict;

/// No image of the collection needs a hundredth of it.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Address space in KiB: what threads and the program itself take, and little more.
const MEMORY_KIB_MAX: &str = "2000000";
/// The longest dump of a tree: the images have a few MiB of metadata.
const OUTPUT_BYTES_MAX: usize = 256 << 20;

fn limited(program: &Program, args: &[&str]) -> Run {
    let script = format!("ulimit -v {MEMORY_KIB_MAX}; exec \"$0\" \"$@\"");
    Run::new("bash").args(["-c", &script]).arg(program.path()).args(args).limit(TIME_MAX)
}

/// `creamery check`: its verdict, and what it did that it must not do.
pub(super) fn check(program: &Program, image: &Path) -> (Verdict, Vec<String>) {
    let mut complaints = Vec::new();
    let run = limited(program, &["check", "--json", "--threads", "2"]).arg(image);
    let Some(finished) = ended(run, &mut complaints) else { return (Verdict::Refused, complaints) };
    if serde_json::from_slice::<Value>(&finished.stdout).is_err() {
        complaints.push(format!("--json printed something else: {finished}"));
    }
    let verdict = match finished.code {
        Some(0) => Verdict::Clean,
        Some(4) => Verdict::Broken,
        _ => Verdict::Refused,
    };
    (verdict, complaints)
}

/// All other readers: what they did that they must not do.
pub(super) fn others(program: &Program, image: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    let data = limited(program, &["check", "--check-data-csum", "--json"]).arg(image);
    let superblock = limited(program, &["inspect-internal", "dump-super", "-fa"]).arg(image);
    let trees = limited(program, &["inspect-internal", "dump-tree"]).arg(image);
    let list = limited(program, &["ls", "-lR"]).arg(format!("{}:/", image.display()));
    for run in [data, superblock, trees, list] {
        ended(run, &mut complaints);
    }
    complaints
}

/// What it left, unless it did not end as programs should.
fn ended(run: Run, complaints: &mut Vec<String>) -> Option<Finished> {
    let finished = match run.output() {
        Ok(finished) => finished,
        Err(error) => {
            complaints.push(format!("{error:#}"));
            return None;
        }
    };
    // 101 is a panic.
    let well = finished.code.is_some_and(|code| [0, 1, 2, 4, 8].contains(&code));
    if !well || finished.stdout.len() > OUTPUT_BYTES_MAX {
        complaints.push(finished.to_string());
        return None;
    }
    Some(finished)
}
