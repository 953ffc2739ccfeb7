//! The `creamery` program: arguments in, words out. The library does the work.

mod archives;
mod args;
mod closed_output;
mod columns;
mod commands;
mod descriptors;
mod failure;
mod help;
mod images;
mod interrupt;
mod json;
mod links;
mod live;
mod log;
mod losses;
mod manual;
mod names;
mod new_file;
mod output;
mod path_in_image;
mod progress;
mod size;
mod source_date;
mod state;
mod time;
mod units;
mod view;
mod waits;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use signal_hook::consts::SIGXFSZ;

use args::{Cli, Command, InspectCommand};
use failure::{Failure, usage};
use links::Link;

/// musl's own allocator takes one lock for all threads and returns large pieces to the system each time.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    closed_output::refuse_words();
    // A write beyond the limit of file sizes (ulimit -f) must fail like any other, not end a server. If this registration fails, it ends
    // the server.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    match links::follow(&args, &program()) {
        Some(Link::Done(status)) => status,
        Some(Link::Words(words)) => as_btrfs(&words),
        None => answer(&args, OptionNames::AreWhole),
    }
}

/// Runs the words with the exit statuses of btrfs-progs: 1 for any failure, except where a status is an answer.
fn as_btrfs(words: &[OsString]) -> ExitCode {
    let asked: &[u8] = match words.get(1).and_then(|word| word.to_str()) {
        Some("device") => &[commands::device::ANY],
        Some("scrub") => &commands::scrub::STATUSES,
        _ => &[],
    };
    let told = answer(words, OptionNames::MayBeShort);
    let is_kept = told == ExitCode::SUCCESS || asked.iter().any(|status| told == ExitCode::from(*status));
    if is_kept { told } else { ExitCode::FAILURE }
}

/// Whether a long option may be abbreviated to an unambiguous prefix, as in getopt_long(3): the programs whose names are links to this one
/// accept that.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OptionNames {
    AreWhole,
    MayBeShort,
}

/// The whole command line of this program.
fn program() -> clap::Command {
    help::with_overview(waits::with_option(Cli::command()))
}

fn parse(args: &[OsString], names: OptionNames) -> Result<Cli, clap::Error> {
    let mut command = program().infer_long_args(names == OptionNames::MayBeShort);
    let matches = command.try_get_matches_from_mut(args)?;
    waits::follow(&matches);
    view::follow(&matches);
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Prints the error of a command line, also that a command of btrfs-progs is missing. Returns the exit status.
fn refuse(error: &clap::Error, args: &[OsString]) -> ExitCode {
    let program = program();
    match links::missing_of(args, &program).filter(|_| error.kind() == ErrorKind::InvalidSubcommand) {
        Some(what) => {
            failure::complain(&what);
            ExitCode::from(2)
        }
        None => usage(error, &program, args),
    }
}

/// Runs the command line. Returns the exit status.
fn answer(args: &[OsString], names: OptionNames) -> ExitCode {
    let outcome = match commands::helper::parse(args) {
        Some(Ok(call)) => commands::helper::run(&call),
        Some(Err(error)) => return usage(&error, &Cli::command(), args),
        None => match parse(args, names) {
            Ok(cli) => run(cli.command),
            Err(error) => {
                let status = refuse(&error, args);
                let is_help = status == ExitCode::SUCCESS;
                return if names == OptionNames::AreWhole || is_help { status } else { ExitCode::FAILURE };
            }
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let status = failure.report();
            if failure.is_ended() {
                interrupt::die();
            }
            status
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Mkfs(args) => commands::mkfs::run(&args),
        Command::Mount(args) => commands::mount::run(&args),
        Command::Mounts(args) => commands::mounts::run(&args),
        Command::Umount(args) => commands::mount::umount(&args),
        Command::Ls(args) => commands::ls::run(&args),
        Command::Cat(args) => commands::cat::run(&args),
        Command::Stat(args) => commands::stat::run(&args),
        Command::Cp(args) => commands::cp::run(&args),
        Command::Dedupe(args) => commands::dedupe::run(&args),
        Command::Mkdir(args) => commands::change::mkdir(&args),
        Command::Rm(args) => commands::change::rm(&args),
        Command::Mv(args) => commands::mv::run(&args),
        Command::Ln(args) => commands::mv::run_ln(&args),
        Command::Chmod(args) => commands::attributes::chmod(&args),
        Command::Chown(args) => commands::attributes::chown(&args),
        Command::Touch(args) => commands::attributes::touch(&args),
        Command::Truncate(args) => commands::truncate::run(&args),
        Command::Find(args) => commands::find::run(&args),
        Command::Diff(args) => commands::diff::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Tar(args) => commands::tar::run(&args),
        Command::Device(command) => commands::device::run(&command),
        Command::Fallocate(args) => commands::fallocate::run(&args),
        Command::Df(args) => commands::df::run(&args),
        Command::Stats(args) => commands::stats::run(&args),
        Command::Sync(args) => commands::sync::run(&args),
        Command::Subvolume(command) => commands::subvolume::run(&command),
        Command::Quota(command) => commands::quota::run(&command),
        Command::Qgroup(command) => commands::quota::run_qgroup(&command),
        Command::Property(command) => commands::property::run(&command),
        Command::Filesystem(command) => commands::filesystem::run(&command),
        Command::Generate(command) => commands::generate::run(&command, program()),
        Command::Tune(args) => commands::tune::run(&args),
        Command::Check(args) => commands::check::run(&args),
        Command::Scrub(command) => commands::scrub::run(&command),
        Command::History(args) => commands::history::run(&args),
        Command::Undelete(args) => commands::undelete::run(&args),
        Command::Rescue(command) => commands::rescue::run(&command),
        Command::Restore(args) => commands::restore::run(&args),
        Command::Help(args) => commands::help::run(&args, program()),
        Command::Inspect(InspectCommand::DumpSuper(args)) => commands::inspect::dump_super(&args),
        Command::Inspect(InspectCommand::DumpTree(args)) => commands::inspect::dump_tree(&args),
        Command::Inspect(InspectCommand::InodeResolve(args)) => commands::resolve::inode(&args),
        Command::Inspect(InspectCommand::LogicalResolve(args)) => commands::resolve::logical(&args),
        Command::Inspect(InspectCommand::Partitions(args)) => commands::partitions::run(&args),
        Command::Inspect(InspectCommand::Rootid(args)) => commands::resolve::rootid(&args),
        Command::Inspect(InspectCommand::SubvolidResolve(args)) => commands::resolve::subvolid(&args),
    }
}
