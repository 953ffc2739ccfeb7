//! Runs `check` of fstests over a list of tests, past those that hang.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use creamery_testkit::Run;

use super::outcome::{Outcome, Reader};
use super::stage::Stage;

/// A test that prints nothing for so long hangs: the slowest of the quick group take a minute or two.
const SILENCE_MAX: Duration = Duration::from_secs(420);

/// Runs `tests` in the checkout. A test that hangs is stopped, and the run goes on behind it.
pub(crate) fn run_tests(checkout: &Path, stage: &Stage, tests: &[String]) -> Result<Reader> {
    let mut reader = Reader::default();
    let mut left = tests;
    while !left.is_empty() {
        run_until_hang(checkout, stage, left, &mut reader)?;
        stage.unmount();
        let known = left.iter().rposition(|test| reader.outcomes.contains_key(test));
        let known = known.context("fstests ran none of the tests; what it said stands above")?;
        left = &left[known + 1..];
    }
    Ok(reader)
}

fn run_until_hang(checkout: &Path, stage: &Stage, tests: &[String], reader: &mut Reader) -> Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new("./check")
        .args(tests)
        .current_dir(checkout)
        .env("HOST_OPTIONS", &stage.settings)
        .env("PATH", format!("{}:/usr/sbin:/sbin:{path}", stage.helpers.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {}/check", checkout.display()))?;
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
    loop {
        match receiver.recv_timeout(SILENCE_MAX) {
            Ok(piece) => {
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
            Err(RecvTimeoutError::Timeout) => {
                println!("{} hangs", String::from_utf8_lossy(&line));
                // The whole group of processes; what hangs in the kernel lets go when its server is gone.
                let group = format!("-{}", child.id());
                stage.unmount();
                Run::new("kill").args(["-KILL", "--", &group]).output()?;
                break;
            }
        }
    }
    reader.line(&String::from_utf8_lossy(&line));
    child.wait()?;
    if let Some(test) = reader.current.take() {
        let last = tests.last().is_some_and(|last| *last == test);
        ensure!(!last || reader.outcomes.contains_key(&test), "{test} has no outcome");
        if !last {
            reader.outcomes.insert(test, Outcome::Hung);
        }
    }
    Ok(())
}
