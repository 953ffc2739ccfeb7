//! A scrub that goes on after the command has returned: in this program, started again.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use creamery::Error;
use creamery_base::{DevId, Uuid};

use super::kept::status_file;
use super::run_args::{RunArgs, Which};
use crate::waits;

/// Output of the process once its scrub has begun, at the beginning of a line.
const READY: &[u8] = b"scrub started on ";
/// Limit of the answer of that process, bytes.
const ANSWER_MAX: u64 = 1 << 20;

/// Starts this program again to scrub, and returns when the scrub has begun. If the process ends earlier, its error is printed already.
/// Errors: the process cannot be started.
pub(super) fn begin(args: &RunArgs, which: Which) -> Result<(), Error> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(which.name().split(' ')).args(["-B", "--announce"]);
    let switches = [(args.reads_only, "-r"), (args.rewrite_parity, "--rewrite-parity")];
    command.args(switches.into_iter().filter(|(is, _)| *is).map(|(_, word)| word));
    // The first program has checked the status already.
    command.args((which == Which::Start).then_some("-f"));
    let numbers = [
        ("--limit", args.limit.map(|limit| limit.0)),
        ("-c", args.io_class.map(u64::from)),
        ("-n", args.io_level.map(u64::from)),
    ];
    for (word, number) in numbers {
        command.args(number.into_iter().flat_map(|number| [word.to_owned(), number.to_string()]));
    }
    command.args(args.set.words());
    command.args(waits::words().into_iter().flatten());
    command.arg("--").arg(&args.image);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut said = Vec::new();
    let out = child.stdout.take().expect("its output is piped");
    out.take(ANSWER_MAX).read_to_end(&mut said)?;
    if said.starts_with(READY) {
        if !args.quiet {
            std::io::stdout().write_all(&said)?;
        }
        return Ok(());
    }
    let status = child.wait()?;
    std::process::exit(status.code().unwrap_or(1)); // the process printed its error
}

/// Announces the scrub, and detaches from the terminal. Further output goes to a file beside the status.
/// Errors: that fails.
pub(super) fn announce(args: &RunArgs, filesystem: Uuid, devices: &[DevId]) -> Result<(), Error> {
    // This fails if a shell with job control started the process, which is a group leader then; it stays in its session.
    let _ = rustix::process::setsid();
    let output = status_file(&args.image, &args.set)?.make_output()?;
    let mut text = format!(
        "scrub started on {}, fsid {filesystem} (pid={})\n",
        args.image.display(),
        std::process::id()
    );
    devices.iter().for_each(|id| text.push_str(&format!("Starting scrub on devid {id}\n")));
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stdout(&output).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stderr(&output).map_err(std::io::Error::from)?;
    Ok(())
}

/// Sets the class and level of I/O priority of this process through ionice(1).
/// Errors: ionice is missing, or fails.
pub(super) fn set_io_priority(class: u8, level: Option<u8>) -> Result<(), Error> {
    let mut command = Command::new("ionice");
    command.args(["-c", &class.to_string()]);
    if let Some(level) = level {
        command.args(["-n", &level.to_string()]);
    }
    command.args(["-p", &std::process::id().to_string()]);
    let status = command.status().map_err(|error| {
        let error = Error::from(error).context("running ionice to set the I/O priority");
        error.advise("install util-linux, or omit -c and -n")
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::invalid(format!("ionice refused class {class}"))),
    }
}
