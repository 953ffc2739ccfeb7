//! Called as `btrfs`: the groups and commands of btrfs-progs, which may be abbreviated to an unambiguous prefix, with its global options in
//! front. The program runs the commands that it has, and names those that it lacks.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Command;

use creamery::error::Escaped;

use super::commands::{COMMANDS, missing};
use super::hand_over;
use super::link::Link;
use crate::failure::say;
use crate::output::tell;

/// Commands with `--format json`, as in btrfs-progs 6.14.
const FORMATS: [&[&str]; 3] = [&["device", "stats"], &["filesystem", "df"], &["qgroup", "show"]];

/// Commands that print nothing with `-q`, neither their actions nor their results.
const TALK: [&str; 12] = [
    "create",
    "delete",
    "snapshot",
    "sync",
    "defragment",
    "list",
    "get-default",
    "df",
    "get",
    "start",
    "resume",
    "cancel",
];

/// The meaning of the words behind the program's name. `program` is our whole command line.
pub(super) fn follow(args: &[OsString], program: &Command) -> Link {
    match words(args, program) {
        Ok(link) => link,
        Err(complaint) => {
            say(&format!("btrfs: {complaint}"));
            Link::Done(ExitCode::FAILURE)
        }
    }
}

fn words(all: &[OsString], program: &Command) -> Result<Link, String> {
    let mut args = all.iter();
    let (mut quiet, mut is_json) = (false, false);
    let first = loop {
        let Some(arg) = args.next() else {
            usage(program);
            return Ok(Link::Done(ExitCode::FAILURE));
        };
        match arg.to_str() {
            Some("-v" | "--verbose") => {}
            Some("-q" | "--quiet") => quiet = true,
            Some("--format") => is_json = asks_for_json(args.next().and_then(|format| format.to_str()))?,
            Some(format) if format.starts_with("--format=") => {
                is_json = asks_for_json(format.strip_prefix("--format="))?;
            }
            Some("--log") => quiet |= args.next().is_some_and(|level| level == "quiet"),
            Some(log) if log.starts_with("--log=") => quiet |= log.ends_with("=quiet"),
            Some("--help") => break "help",
            Some("--version") => break "version",
            Some(option) if option.starts_with('-') => {
                return Err(format!("creamery has no {}; see `btrfs help`", Escaped(arg.as_encoded_bytes())));
            }
            _ => break token(arg, COMMANDS.iter().map(|(name, _)| *name), "")?,
        }
    };
    match first {
        "help" => {
            usage(program);
            return Ok(Link::Done(ExitCode::SUCCESS));
        }
        "version" => {
            tell(format_args!("btrfs, part of creamery {}", crate::help::VERSION));
            return Ok(Link::Done(ExitCode::SUCCESS));
        }
        _ => {}
    }
    let within =
        COMMANDS.iter().find(|(name, _)| *name == first).map(|(_, within)| *within).unwrap_or_default();
    let mut path = vec![first];
    if !within.is_empty() {
        let Some(arg) = args.next() else {
            return group_alone(first, within, program);
        };
        if arg == "--help" {
            return Ok(Link::Words(["creamery", first, "--help"].map(OsString::from).to_vec()));
        }
        path.push(token(arg, within.iter().copied(), first)?);
    }
    hand_over::where_linux_serves(&path, all, args.as_slice())?;
    let rest = match path[..] {
        ["filesystem", "show"] => hand_over::show_those_of_linux(all, args.as_slice()),
        _ => Some(args.as_slice().to_vec()),
    };
    let Some(mut rest) = rest else { return Ok(Link::Done(ExitCode::SUCCESS)) };
    if is_json {
        if !FORMATS.contains(&&path[..]) {
            return Err(format!("{}: output format json is unsupported for this command", path.join(" ")));
        }
        rest.insert(0, "--format-json".into());
    }
    ours(&path, quiet, &rest, program)
}

/// Prints all groups and commands on standard output, like btrfs-progs.
fn usage(program: &Command) {
    let line = |(name, _): &(&'static str, &[&str])| {
        let about = match *name {
            "help" => "This".to_owned(),
            "version" => "What this is".to_owned(),
            _ => program.find_subcommand(name)?.get_about()?.to_string(),
        };
        Some(format!("  {name:<18}{about}\n"))
    };
    let lines: String = COMMANDS.iter().filter_map(line).collect();
    // An error here cannot be reported anywhere.
    let _ = write!(
        anstream::stdout(),
        "Usage: btrfs [-q] [--format text|json] GROUP COMMAND ...\n\n{lines}\n\
         Names may be shortened as far as it stays clear which is meant. `btrfs GROUP` tells the commands of a group,\n\
         `btrfs GROUP COMMAND --help` the words of one, and `creamery --help` what else there is.\n"
    );
}

/// A group without a command: prints the group's commands; the exit status is that of btrfs-progs.
fn group_alone(group: &'static str, within: &[&str], program: &Command) -> Result<Link, String> {
    let mut program = program.clone();
    program.build();
    let Some(command) = program.find_subcommand_mut(group) else {
        return Err(format!("{group}: missing command: expected {}", within.join(", ")));
    };
    // An error here cannot be reported anywhere.
    let _ = command.print_help();
    Ok(Link::Done(ExitCode::FAILURE))
}

/// Whether the call asks for JSON in the format of btrfs-progs; our `--json` has other formats.
fn asks_for_json(format: Option<&str>) -> Result<bool, String> {
    match format {
        Some("text") => Ok(false),
        Some("json") => Ok(true),
        _ => Err("--format: expected text or json".into()),
    }
}

/// The name that `arg` equals or abbreviates.
fn token(
    arg: &OsString,
    names: impl Iterator<Item = &'static str> + Clone,
    group: &str,
) -> Result<&'static str, String> {
    let (before, word) = (if group.is_empty() { "" } else { ": " }, arg.to_string_lossy());
    if let Some(name) = names.clone().find(|name| *name == word) {
        return Ok(name);
    }
    let found: Vec<_> = names.filter(|name| !word.is_empty() && name.starts_with(&*word)).collect();
    match found[..] {
        [name] => Ok(name),
        [] => Err(format!(
            "{group}{before}unknown command '{}'; see `btrfs help`",
            Escaped(arg.as_encoded_bytes())
        )),
        _ => Err(format!("{group}{before}'{}' may be {}", Escaped(arg.as_encoded_bytes()), found.join(", "))),
    }
}

/// The equivalent words of this program, if it has the command.
fn ours(path: &[&'static str], quiet: bool, rest: &[OsString], program: &Command) -> Result<Link, String> {
    // The one command with another place here.
    let path = if path == ["filesystem", "sync"] { &path[1..] } else { path };
    let found = path.iter().try_fold(program, |command, name| command.find_subcommand(name));
    if found.is_none() {
        return Err(missing(path));
    }
    let mut words: Vec<OsString> = ["creamery"].iter().chain(path).map(OsString::from).collect();
    words.extend(rest.iter().cloned());
    if quiet && path.last().is_some_and(|name| TALK.contains(name)) {
        silence();
    }
    Ok(Link::Words(words))
}

/// Discards all further output; if that fails, the output appears.
fn silence() {
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    fn follow(line: &str) -> Result<Vec<String>, String> {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        match words(&args, &Cli::command())? {
            Link::Words(words) => {
                Ok(words.into_iter().map(|word| word.into_string().expect("text")).collect())
            }
            Link::Done(_) => Ok(Vec::new()),
        }
    }

    #[test]
    fn commands_may_be_shortened_as_far_as_it_is_clear_which_is_meant() {
        for (line, wanted) in [
            ("subvolume list /x", "creamery subvolume list /x"),
            ("sub cr /x/y -q", "creamery subvolume create /x/y -q"),
            ("ins dump-s x", "creamery inspect-internal dump-super x"),
            ("c x", "creamery check x"),
            ("fi sy /x", "creamery sync /x"),
            ("-v --format text fi def -r x", "creamery filesystem defragment -r x"),
            ("--format=text subvolume list x", "creamery subvolume list x"),
            ("--format json fi df -b x", "creamery filesystem df --format-json -b x"),
            ("--format=json qg sh x", "creamery qgroup show --format-json x"),
            ("quota --help", "creamery quota --help"),
        ] {
            let wanted: Vec<String> = wanted.split(' ').map(str::to_owned).collect();
            assert_eq!(follow(line), Ok(wanted), "{line}");
        }
    }

    #[test]
    fn a_group_alone_tells_what_is_in_it_and_fails() {
        let link = words(&[OsString::from("sub")], &Cli::command());
        assert!(matches!(link, Ok(Link::Done(status)) if status == ExitCode::FAILURE));
        assert!(follow("sub").expect("help is no complaint").is_empty());
        let alone = words(&[], &Cli::command());
        assert!(matches!(alone, Ok(Link::Done(status)) if status == ExitCode::FAILURE));
    }

    #[test]
    fn what_is_unknown_unclear_or_missing_is_named() {
        for (line, wanted) in [
            ("s x", "scrub, send, subvolume"),
            ("fi d x", "df, du, defragment"),
            ("nonsense", "unknown command 'nonsense'"),
            ("sub nonsense", "subvolume: unknown command 'nonsense'"),
            ("balance", "balance: missing command: expected start, pause"),
            ("send x", "send is not part of creamery"),
            ("balance start x", "balance start is not part of creamery"),
            ("--dry-run sub list x", "creamery has no --dry-run"),
            ("--format xml sub list x", "expected text or json"),
            ("--format json sub list x", "subvolume list: output format json is unsupported"),
        ] {
            let said = follow(line).expect_err(line);
            assert!(said.contains(wanted), "{line}: {said}");
        }
    }
}
