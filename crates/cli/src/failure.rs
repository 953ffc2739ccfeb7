//! One line for everything that goes wrong: `creamery: WHAT: WHERE: WHY; WHAT TO DO`.

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

/// What ended a command.
pub(crate) struct Failure {
    command: &'static str,
    error: Error,
    advice: Option<String>,
    status: u8,
    /// Whether it is told without the words of its kind.
    is_plain: bool,
    /// Whether its line was printed when it happened.
    is_told: bool,
    /// Whether a signal ended all.
    is_ended: bool,
}

impl Failure {
    /// A failure of `command`, with the advice that it brings, or the usual one for its kind.
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

    /// By a signal: nothing that comes behind it is done.
    fn ended(self, status: u8) -> Self {
        Self { status, is_ended: true, ..self }.plain()
    }

    /// A command line that clap lets pass but that makes no sense; the exit status is 2.
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

    /// What sort of failure it is.
    pub(crate) fn kind(&self) -> ErrorKind {
        self.error.kind()
    }

    /// With this advice instead.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Without advice, and without the words of its kind: what it says is all there is to say.
    pub(crate) fn plain(self) -> Self {
        Self { advice: None, is_plain: true, ..self }
    }

    /// Where what was looked for is a number: no path is wrong.
    pub(crate) fn of_number(self) -> Self {
        match self.kind() {
            ErrorKind::NotFound => self.advise("check the number"),
            _ => self,
        }
    }

    /// Prints the line now. It is a failure still, but says no more.
    pub(crate) fn tell(self) -> Self {
        let _ = self.report();
        Self { is_told: true, ..self }
    }

    /// Whether a signal ended all.
    pub(crate) const fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// What went wrong, without what to do.
    pub(crate) fn why(&self) -> String {
        if self.is_plain { self.error.without_kind() } else { self.error.to_string() }
    }

    /// Whether its line was printed.
    pub(crate) const fn is_told(&self) -> bool {
        self.is_told
    }

    /// All that there is to say was said: an exit status alone.
    pub(crate) fn silent(command: &'static str, status: u8) -> Self {
        let (error, is_plain) = (Error::invalid(""), true);
        Self { command, error, advice: None, status, is_plain, is_told: true, is_ended: false }
    }

    /// With this exit status instead of 1.
    pub(crate) fn status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Prints the line; gives the exit status. A reader that went away (`| head`) is no failure worth a word.
    pub(crate) fn report(&self) -> ExitCode {
        if self.is_told || is_broken_pipe(&self.error) {
            return ExitCode::from(self.status);
        }
        let error = if self.is_plain { self.error.without_kind() } else { self.error.to_string() };
        // The words of this kind add nothing to a sentence that says what is wrong.
        let error = error.strip_suffix(": invalid argument").unwrap_or(&error);
        let mut line = format!("{}: {error}", self.command);
        if let Some(advice) = &self.advice {
            line = format!("{line}; {advice}");
        }
        complain(&line);
        ExitCode::from(self.status)
    }
}

/// Does `each` with all of `items`, also behind one that failed. Of several each failure is told at once; the first is given
/// back, and says no more.
pub(crate) fn with_all<I: ExactSizeIterator>(
    items: impl IntoIterator<Item = I::Item, IntoIter = I>,
    mut each: impl FnMut(I::Item) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let items = items.into_iter();
    let are_several = items.len() > 1;
    let mut first: Option<Failure> = None;
    for item in items {
        let Err(failure) = each(item) else { continue };
        // Nobody reads what the others would give.
        if is_broken_pipe(&failure.error) || failure.is_ended {
            return Err(failure);
        }
        let failure = if are_several { failure.tell() } else { failure };
        first.get_or_insert(failure);
    }
    first.map_or(Ok(()), Err)
}

/// Whether who was to read the output went away.
pub(crate) fn is_broken_pipe(error: &Error) -> bool {
    error.host() == Some(std::io::ErrorKind::BrokenPipe)
}

/// Says a line on stderr. When that is full or gone, there is nobody else to tell; what is done and the exit status stay.
pub(crate) fn say(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// What is said of `error`, `why` it was: with what can be done, where that place knew.
pub(crate) fn with_advice(why: String, error: &Error) -> String {
    error.advice().map_or_else(|| why.clone(), |advice| format!("{why}; {advice}"))
}

/// Says a line about what went wrong on stderr.
pub(crate) fn complain(line: &str) {
    say(&format!("{} {}", "creamery:".red().bold(), on_one_line(line)));
}

/// Says on stderr what is no failure but worth knowing.
pub(crate) fn warn(line: &str) {
    say(&format!("{} {}", "creamery: warning:".yellow().bold(), on_one_line(line)));
}

/// Errors escape what they tell of; arguments and paths of the host can be anything, too.
fn on_one_line(line: &str) -> String {
    Escaped(line.replace('\n', " ").as_bytes()).to_string()
}

/// Nothing that is done to the image helps there.
const FULL_HOST: &str = "make room on the host, where this is written";

/// What a filesystem of the host takes depends on which it is.
const LONG_FOR_HOST: &str = "the host keeps no file of that length here; want less";

fn usual_advice(command: &str, kind: ErrorKind) -> Option<&'static str> {
    Some(match (command, kind) {
        ("mkfs", ErrorKind::AlreadyExists) => "use -f to overwrite it",
        ("mkfs", ErrorKind::NoSpace) => "give more with -b",
        ("umount", ErrorKind::Busy) => "close the files, and leave the directories first",
        (_, ErrorKind::Busy) => "unmount or close it first",
        (_, ErrorKind::Corrupt | ErrorKind::Unreadable)
            if command != "check" && !command.starts_with("rescue") =>
        {
            "`creamery check` says what is damaged"
        }
        ("rm", ErrorKind::IsADirectory) => "use -r for directories",
        ("cat", ErrorKind::IsADirectory) => "use ls",
        ("cp", ErrorKind::IsADirectory) => "use -r or -a",
        ("mkdir", ErrorKind::AlreadyExists) => "use -p if that is fine",
        ("mkdir", ErrorKind::NotFound) => "use -p to make parents too",
        (_, ErrorKind::NotFound) => "check the path",
        (_, ErrorKind::NameTooLong) => "names have at most 255 bytes",
        (_, ErrorKind::NoSpace) => "remove something, or use a larger image",
        (_, ErrorKind::QuotaExceeded) => "remove something, or raise the limit (`creamery qgroup limit`)",
        ("mkfs", ErrorKind::IsADirectory) => "name an image file or a block device",
        (_, ErrorKind::NotADirectory | ErrorKind::IsADirectory) => "check the path",
        (_, ErrorKind::PermissionDenied) if rustix::process::geteuid().is_root() => {
            "the host refuses it to root, too: see its attributes (lsattr) and how it is mounted; another user's mount lets root in with -o allow_other"
        }
        (_, ErrorKind::PermissionDenied) => "check the permissions, or run as root",
        _ => return None,
    })
}

/// What clap has to say, on one line; help and version as they are.
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
    // The first paragraph says what is wrong; tips and usage follow.
    let paragraph: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let what = paragraph.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    // What one of our parsers refuses is no news.
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
    // Of fsck(8).
    ExitCode::from(if command == "check" { 16 } else { 2 })
}

/// How the standard library says that a word is not the number that is wanted, and how we do; if that is what `error` is about.
fn not_a_number(error: &clap::Error) -> Option<(String, &'static str)> {
    let why = std::error::Error::source(error)?.downcast_ref::<ParseIntError>()?;
    let ours = match why.kind() {
        IntErrorKind::Zero => "want at least 1",
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "too large a number",
        _ => "want a whole number",
    };
    Some((why.to_string(), ours))
}

/// What clap thinks was meant.
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
