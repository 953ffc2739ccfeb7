//! Runs commands that run tests, and watches them: a test that hangs is a failure with its name, not a run without end.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context, Result};

/// The longest silence of a command: more than any test needs for a whole matrix on a busy machine. Everything is built before.
pub(crate) const SILENCE: Duration = Duration::from_secs(60 * 60);

/// Runs `command` and passes every line of its output to `take`. If the command prints nothing for `silence`, its child processes are
/// killed: cargo names the binary and goes on with the next one, and the standard runner has printed which test was running for so long.
pub(crate) fn watched(
    command: &mut Command,
    silence: Duration,
    take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<ExitStatus> {
    watched_by(command, silence, |_, lines| lines.recv_timeout(silence), take)
}

/// A line that a command printed.
type Line = std::io::Result<Vec<u8>>;

/// Like [`watched`]; `next` waits for the next line of the child, and returns an error after a silence that is too long.
fn watched_by(
    command: &mut Command,
    silence: Duration,
    mut next: impl FnMut(&Child, &Receiver<Line>) -> Result<Line, RecvTimeoutError>,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<ExitStatus> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("starting a command")?;
    let output = child.stdout.take().context("reading what a command says")?;
    let (send, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    loop {
        match next(&child, &lines) {
            Ok(line) => take(&line?)?,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                take(format!("xtask: nothing was said for {} s: killed", silence.as_secs()).as_bytes())?;
                kill_children(&child)?;
            }
        }
    }
    drop(reader);
    child.wait().context("waiting for a command")
}

/// The ids of the running child processes of `child`.
fn children_of(child: &Child) -> String {
    let id = child.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    children.unwrap_or_default().trim().to_owned()
}

/// Kills the child processes of `child`, or `child` itself if it has none.
fn kill_children(child: &Child) -> Result<()> {
    let children = children_of(child);
    let whom = if children.is_empty() { child.id().to_string() } else { children };
    let status = Command::new("sh").args(["-c", &format!("kill -KILL {whom}")]).status();
    status.context("killing what hangs").map(|_| ())
}

#[cfg(test)]
mod tests {
    use creamery_testkit::wait_until;

    use super::*;

    #[test]
    fn who_is_silent_for_too_long_is_killed_and_what_comes_after_goes_on() {
        let mut said = Vec::new();
        let take = |line: &[u8]| {
            said.push(String::from_utf8_lossy(line).into_owned());
            Ok(())
        };
        let mut command = Command::new("sh");
        command.args(["-c", "echo before; sleep 1000; echo after; exit 3"]);
        let mut asked = 0;
        let next = |child: &Child, lines: &Receiver<Line>| {
            asked += 1;
            if asked == 2 {
                wait_until("a child that hangs", || !children_of(child).is_empty());
                return Err(RecvTimeoutError::Timeout);
            }
            lines.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        let status = watched_by(&mut command, Duration::from_secs(1), next, take).expect("it runs");
        assert_eq!(status.code(), Some(3));
        assert_eq!(said, ["before", "xtask: nothing was said for 1 s: killed", "after"]);
    }
}
