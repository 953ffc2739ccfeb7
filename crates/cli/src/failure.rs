//! One line for every failure: `creamery: WHAT: WHERE: WHY; WHAT TO DO`.

use std::ffi::OsString;
use std::io::Write;
use std::num::{IntErrorKind, ParseIntError};
use std::process::ExitCode;

use clap::error::{ContextKind as Context, ContextValue, ErrorKind as Usage};
use creamery::error::Escaped;
use creamery::{Error, ErrorKind};
use owo_colors::OwoColorize;

use crate::closed_output::writing;
use crate::interrupt;

/// The failure of a command: error, advice and exit status.
pub(crate) struct Failure {
    command: &'static str,
    error: Error,
    advice: Option<String>,
    status: u8,
    /// Whether the line omits the words of the error's kind.
    is_plain: bool,
    /// Whether the line is printed already.
    is_told: bool,
    /// Whether a signal ended the command.
    is_ended: bool,
}

impl Failure {
    /// A failure of `command`, with the error's own advice, or the usual advice for its kind.
    pub(crate) fn new(command: &'static str, error: Error) -> Self {
        if error.kind() == ErrorKind::Interrupted
            && let Some((what, status)) = interrupt::end(command)
        {
            return Self::new(command, Error::invalid(what)).ended(status);
        }
        let advice = match (error.advice(), error.host()) {
            (Some(known), _) => Some(known),
            (None, Some(std::io::ErrorKind::StorageFull)) => Some(FULL_HOST),
            (None, Some(std::io::ErrorKind::FileTooLarge)) => Some(LONG_FOR_HOST),
            (None, _) => usual_advice(command, error.kind()),
        };
        let advice = advice.map(str::to_owned);
        Self { command, error, advice, status: 1, is_plain: false, is_told: false, is_ended: false }
    }

    /// Marks the failure as caused by a signal: the command does not go on with its other operands.
    fn ended(self, status: u8) -> Self {
        Self { status, is_ended: true, ..self }.plain()
    }

    /// A command line that clap accepts but that makes no sense; the exit status is 2.
    pub(crate) fn usage(command: &'static str, what: &str) -> Self {
        let advice = Some(format!("see `creamery {command} --help`"));
        Self {
            command,
            error: Error::invalid(what),
            advice,
            status: 2,
            is_plain: false,
            is_told: false,
            is_ended: false,
        }
    }

    /// The kind of the error.
    pub(crate) fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// Replaces the advice.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Removes the advice and the words of the error's kind, where the message is complete without them.
    pub(crate) fn plain(self) -> Self {
        Self { advice: None, is_plain: true, ..self }
    }

    /// Replaces the advice for "not found" where the operand is a number, not a path.
    pub(crate) fn of_number(self) -> Self {
        match self.kind() {
            ErrorKind::NotFound => self.advise("check the number"),
            _ => self,
        }
    }

    /// Prints the line now. The failure remains, but prints nothing later.
    pub(crate) fn tell(self) -> Self {
        let _ = self.report();
        Self { is_told: true, ..self }
    }

    /// Whether a signal ended the command.
    pub(crate) const fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The error message without the advice.
    pub(crate) fn why(&self) -> String {
        if self.is_plain { self.error.without_kind() } else { self.error.to_string() }
    }

    /// Whether the line is printed already.
    pub(crate) const fn is_told(&self) -> bool {
        self.is_told
    }

    /// An exit status without a message.
    pub(crate) fn silent(command: &'static str, status: u8) -> Self {
        let (error, is_plain) = (Error::invalid(""), true);
        Self { command, error, advice: None, status, is_plain, is_told: true, is_ended: false }
    }

    /// Replaces the exit status 1.
    pub(crate) fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Prints the line and returns the exit status. A closed pipe (`| head`) prints nothing.
    pub(crate) fn report(&self) -> ExitCode {
        if self.is_told || is_broken_pipe(&self.error) {
            return ExitCode::from(self.status);
        }
        let error = if self.is_plain { self.error.without_kind() } else { self.error.to_string() };
        // The words of this kind add nothing to a sentence that states the error.
        let error = error.strip_suffix(": invalid argument").unwrap_or(&error);
        let mut line = format!("{}: {error}", self.command);
        if let Some(advice) = &self.advice {
            line = format!("{line}; {advice}");
        }
        complain(&line);
        ExitCode::from(self.status)
    }
}

/// Runs `each` on all `items`, also after a failure. With several items each failure is printed at once. Returns the first failure, which
/// is printed already then.
pub(crate) fn with_all<I: ExactSizeIterator>(
    items: impl IntoIterator<Item = I::Item, IntoIter = I>,
    mut each: impl FnMut(I::Item) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let items = items.into_iter();
    let are_several = items.len() > 1;
    let mut first: Option<Failure> = None;
    for item in items {
        let Err(failure) = each(item) else { continue };
        // After a closed pipe the rest has no reader; after a signal the command ends.
        if is_broken_pipe(&failure.error) || failure.is_ended {
            return Err(failure);
        }
        let failure = if are_several { failure.tell() } else { failure };
        first.get_or_insert(failure);
    }
    first.map_or(Ok(()), Err)
}

/// Whether the reader of the output closed the pipe.
pub(crate) fn is_broken_pipe(error: &Error) -> bool {
    error.host() == Some(std::io::ErrorKind::BrokenPipe)
}

/// Prints a line on stderr. An error there is ignored: the work and the exit status remain.
pub(crate) fn say(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// `why`, with the advice of `error` if it has one.
pub(crate) fn with_advice(why: String, error: &Error) -> String {
    error.advice().map_or_else(|| why.clone(), |advice| format!("{why}; {advice}"))
}

/// Prints an error message on stderr.
pub(crate) fn complain(line: &str) {
    say(&format!("{} {}", "creamery:".red().bold(), on_one_line(line)));
}

/// Prints a warning on stderr.
pub(crate) fn warn(line: &str) {
    say(&format!("{} {}", "creamery: warning:".yellow().bold(), on_one_line(line)));
}

/// Escapes a message and joins its lines. Errors escape the names in them, but arguments and paths of the host are not escaped yet.
fn on_one_line(line: &str) -> String {
    Escaped(line.replace('\n', " ").as_bytes()).to_string()
}

/// Advice when the host is full: no change to the image helps there.
const FULL_HOST: &str = "make room on the host, where this is written";

/// Advice when a file is too long for the host: the limit depends on the host's filesystem.
const LONG_FOR_HOST: &str = "the host's filesystem limits the file size; use a smaller size";

fn usual_advice(command: &str, kind: ErrorKind) -> Option<&'static str> {
    Some(match (command, kind) {
        ("mkfs", ErrorKind::AlreadyExists) => "use -f to overwrite it",
        ("mkfs", ErrorKind::NoSpace) => "use a larger size with -b",
        ("umount", ErrorKind::Busy) => "close its files and leave its directories first",
        (_, ErrorKind::Busy) => "unmount or close it first",
        (_, ErrorKind::Corrupt | ErrorKind::Unreadable)
            if command != "check" && !command.starts_with("rescue") =>
        {
            "`creamery check` says what is damaged"
        }
        ("rm", ErrorKind::IsADirectory) => "use -r for directories",
        ("cat", ErrorKind::IsADirectory) => "use ls",
        ("cp", ErrorKind::IsADirectory) => "use -r or -a",
        ("mkdir", ErrorKind::AlreadyExists) => "use -p to accept that",
        ("mkdir", ErrorKind::NotFound) => "use -p to make parents too",
        (_, ErrorKind::NotFound) => "check the path",
        (_, ErrorKind::NameTooLong) => "names have at most 255 bytes",
        (_, ErrorKind::NoSpace) => "remove something, or use a larger image",
        (_, ErrorKind::QuotaExceeded) => "remove something, or raise the limit (`creamery qgroup limit`)",
        ("mkfs", ErrorKind::IsADirectory) => "name an image file or a block device",
        (_, ErrorKind::NotADirectory | ErrorKind::IsADirectory) => "check the path",
        (_, ErrorKind::PermissionDenied) if rustix::process::geteuid().is_root() => {
            "the host refuses this to root: see its attributes (lsattr) and mount options; another user's mount admits root with -o allow_other"
        }
        (_, ErrorKind::PermissionDenied) => "check the permissions, or run as root",
        _ => return None,
    })
}

/// Prints clap's error on one line; prints help and version unchanged.
pub(crate) fn usage(error: &clap::Error, cli: &clap::Command, args: &[OsString]) -> ExitCode {
    if matches!(error.kind(), Usage::DisplayHelp | Usage::DisplayVersion) {
        return match error.print() {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                complain(&writing(error).to_string());
                ExitCode::FAILURE
            }
            _ => ExitCode::SUCCESS,
        };
    }
    if error.kind() == Usage::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.to_string();
    // The first paragraph has the error; tips and usage follow.
    let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let what = paragraph.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    // The suffix of an error from our parsers adds nothing here.
    let what = what.strip_suffix(": invalid argument").unwrap_or(what);
    let what = match not_a_number(error) {
        Some((theirs, ours)) => what.replace(&theirs, ours),
        None => what.to_owned(),
    };
    let what = match suggestion(error) {
        Some(meant) => format!("{what}, did you mean '{meant}'?"),
        None => what,
    };
    let words = args.iter().skip(1).filter_map(|arg| arg.to_str());
    let command: Vec<&str> = words.take_while(|word| is_command(cli, word)).collect();
    let command = command.join(" ");
    if command.is_empty() {
        complain(&format!("{what}; see `creamery --help`"));
    } else {
        complain(&format!("{command}: {what}; see `creamery {command} --help`"));
    }
    // Exit status of fsck(8).
    ExitCode::from(if command == "check" { 16 } else { 2 })
}

/// The standard library's message that a word is not a number, and our message for it, if `error` is about that.
fn not_a_number(error: &clap::Error) -> Option<(String, &'static str)> {
    let why = std::error::Error::source(error)?.downcast_ref::<ParseIntError>()?;
    let ours = match why.kind() {
        IntErrorKind::Zero => "expected at least 1",
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "number is too large",
        _ => "expected a whole number",
    };
    Some((why.to_string(), ours))
}

/// The option or command that clap suggests.
fn suggestion(error: &clap::Error) -> Option<String> {
    let kinds = [Context::SuggestedSubcommand, Context::SuggestedArg, Context::SuggestedValue];
    kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(word) => Some(word.clone()),
        ContextValue::Strings(words) => words.first().cloned(),
        _ => None,
    })
}

fn is_command(cli: &clap::Command, word: &str) -> bool {
    let known = |command: &clap::Command| {
        command.get_name() == word || command.get_all_aliases().any(|alias| alias == word)
    };
    cli.get_subcommands().any(|command| known(command) || command.get_subcommands().any(known))
}
