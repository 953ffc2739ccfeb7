//! Runs `check` of fstests over a list of tests, past those that hang.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::Run;

use super::outcome::{Outcome, Reader};
use super::stage::FstestsStage;

/// A test that prints nothing for so long hangs: the slowest of the quick group take a minute or two.
const SILENCE_MAX: Duration = Duration::from_secs(420);
/// How long a signal may wait until it is seen.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Runs `tests` on the stage, in the order given. A test that hangs is stopped, and the run goes on with those that are left.
pub(crate) fn run_tests(stage: &FstestsStage, tests: &[String]) -> Result<Reader> {
    let mut reader = Reader::default();
    loop {
        let left = left_of(tests, &reader);
        if left.is_empty() {
            return Ok(reader);
        }
        run_until_hang(stage, &left, &mut reader)?;
        stage.clear();
        ensure!(
            left_of(tests, &reader).len() < left.len(),
            "fstests ran none of {}; what it said stands above",
            left.join(" ")
        );
    }
}

/// The tests that have no outcome yet. `check` has an order of its own, so they may lie anywhere in the list.
fn left_of(tests: &[String], reader: &Reader) -> Vec<String> {
    tests.iter().filter(|test| !reader.outcomes.contains_key(*test)).cloned().collect()
}

fn run_until_hang(stage: &FstestsStage, tests: &[String], reader: &mut Reader) -> Result<()> {
    let mut child = start(stage, tests)?;
    let mut output = child.stdout.take().context("reading what check says")?;
    let (sender, receiver) = mpsc::channel();
    // It ends with the pipe: when check and all that it started are gone, or with this program.
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(len @ 1..) = output.read(&mut piece) {
            if sender.send(piece[..len].to_vec()).is_err() {
                return;
            }
        }
    });
    let mut line = Vec::new();
    let mut heard = Instant::now();
    loop {
        match receiver.recv_timeout(LOOK_AGAIN) {
            Ok(piece) => {
                heard = Instant::now();
                for byte in piece {
                    if byte == b'\n' {
                        let text = String::from_utf8_lossy(&line).into_owned();
                        println!("{text}");
                        reader.line(&text);
                        line.clear();
                    } else {
                        line.push(byte);
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if stage.is_interrupted() => {
                stop(&mut child, stage)?;
                bail!("ended by a signal; what was mounted, attached and linked is taken away");
            }
            Err(RecvTimeoutError::Timeout) if heard.elapsed() > SILENCE_MAX => {
                println!("{} hangs", String::from_utf8_lossy(&line));
                stop(&mut child, stage)?;
                break;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    reader.line(&String::from_utf8_lossy(&line));
    child.wait()?;
    // Of whatever was under way when it ended without its last word.
    if let Some(test) = reader.current.take() {
        reader.outcomes.entry(test).or_insert(Outcome::Hung);
    }
    Ok(())
}

fn start(stage: &FstestsStage, tests: &[String]) -> Result<Child> {
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("./check")
        .args(tests)
        .current_dir(&stage.checkout)
        .env("HOST_OPTIONS", &stage.settings)
        .env("PATH", format!("{}:/usr/sbin:/sbin:{path}", stage.helpers.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {}/check", stage.checkout.display()))
}

/// Ends `check` with the whole group of its processes; what hangs in the kernel lets go when its server is gone.
fn stop(child: &mut Child, stage: &FstestsStage) -> Result<()> {
    stage.clear();
    let group = format!("-{}", child.id());
    // A shell has it, where no package brings the program; some do not know `--`.
    Run::new("sh").args(["-c", "kill -KILL $0", &group]).output()?;
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_does_not_depend_on_the_order_of_the_list() {
        let tests = ["generic/010", "generic/002", "generic/007"].map(str::to_owned);
        let mut reader = Reader::default();
        for line in ["generic/002        1s", "generic/010       "] {
            reader.line(line);
        }
        assert_eq!(left_of(&tests, &reader), ["generic/007"]);
    }
}
