//! The manual page of a command.

use clap::{Arg, ArgAction, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use creamery::Error;

use super::names::{COMMANDS, commands_of};
use super::{page, sections};
use crate::help::{self, VERSION, group_of, pages};

/// The line of an explanation before the examples.
const EXAMPLES: &str = "Examples:";

/// The page of `command`, which `words` call. Errors: out of memory.
pub(super) fn render(command: &Command, words: &[&str]) -> Result<Vec<u8>, Error> {
    let name = words.join("-");
    let name = name.as_str();
    let words = words[1..].join(" ");
    let mut out = Vec::new();
    let man = Man::new(with_plain_headings(command.clone()))
        .title(name)
        .section(COMMANDS)
        .source(format!("creamery {VERSION}"))
        .manual("Creamery");
    man.render_title(&mut out)?;
    let mut roff = Roff::new();
    roff.control("SH", ["NAME"]);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    roff.text([roman(format!("{name} - {}", about.trim_end_matches('.')))]);
    synopsis(&mut roff, command);
    let long =
        command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string).unwrap_or_default();
    let (description, examples) = split(&long);
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, &description);
    roff.to_writer(&mut out)?;
    man.render_options_section(&mut out)?;
    let mut roff = Roff::new();
    below(&mut roff, command, name);
    table(&mut roff, "EXIT STATUS", sections::exit_statuses(&words));
    table(&mut roff, "ENVIRONMENT", sections::variables(&words));
    table(&mut roff, "FILES", sections::files(&words));
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
        page::verbatim(&mut roff, examples.iter().map(|line| line.trim()));
    }
    see_also(&mut roff, &words);
    roff.to_writer(&mut out)?;
    Ok(out)
}

/// Replaces headings: a heading in a manual page is a title, and names no command.
fn with_plain_headings(command: Command) -> Command {
    command.mut_args(|arg| match arg.get_help_heading() {
        Some(help::PATHS) => arg.help_heading("Where paths begin"),
        Some(help::DEVICES) => arg.help_heading("Several devices"),
        Some(help::RESCUE) => arg.help_heading("Damaged images"),
        _ => arg,
    })
}

/// The call of the command, each option with its value.
fn synopsis(roff: &mut Roff, command: &Command) {
    roff.control("SH", ["SYNOPSIS"]);
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut line = vec![bold(name)];
    let own = |arg: &&Arg| !arg.is_hide_set() && !is_of_help(arg);
    for option in command.get_opts().filter(own) {
        line.push(roman(" "));
        put_option(&mut line, option);
    }
    for flag in command.get_arguments().filter(own).filter(|arg| !arg.is_positional() && !takes_value(arg)) {
        line.push(roman(" "));
        put_option(&mut line, flag);
    }
    let usage = command.get_overridden_usage().map(|usage| usage.to_string());
    match usage.as_deref().and_then(|usage| usage.split_once("[OPTIONS]")) {
        Some((_, operands)) => line.push(roman(operands.lines().next().unwrap_or_default())),
        None => command.get_positionals().filter(own).for_each(|operand| {
            line.push(roman(" "));
            put_operand(&mut line, operand);
        }),
    }
    if command.has_subcommands() {
        line.extend([roman(" "), italic("COMMAND"), roman(" ...")]);
    }
    roff.text(line);
}

fn is_of_help(arg: &Arg) -> bool {
    matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    )
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|number| number.takes_values())
}

fn is_repeated(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append | ArgAction::Count)
}

fn value_of(arg: &Arg) -> String {
    arg.get_value_names().map_or_else(|| arg.get_id().to_string(), |names| names.join(" "))
}

fn put_option(line: &mut Vec<Inline>, arg: &Arg) {
    let (open, close) = if arg.is_required_set() { ("", "") } else { ("[", "]") };
    line.push(roman(open));
    let names = arg.get_short().map(|short| format!("-{short}")).into_iter();
    let names: Vec<String> = names.chain(arg.get_long().map(|long| format!("--{long}"))).collect();
    line.push(bold(names.join("|")));
    if takes_value(arg) {
        let number = arg.get_num_args().expect("it was built");
        let (before, after) = match (number.min_values() > 0, arg.is_require_equals_set()) {
            (true, true) => ("=", ""),
            (true, false) => (" ", ""),
            (false, true) => ("[=", "]"),
            (false, false) => (" [", "]"),
        };
        line.extend([roman(before), italic(value_of(arg)), roman(after)]);
    }
    line.push(roman(close));
    if is_repeated(arg) {
        line.push(roman("..."));
    }
}

fn put_operand(line: &mut Vec<Inline>, arg: &Arg) {
    let (open, close) = if arg.is_required_set() { ("", "") } else { ("[", "]") };
    line.extend([roman(open), italic(value_of(arg)), roman(close)]);
    if is_repeated(arg) {
        line.push(roman("..."));
    }
}

/// Splits a long help into the explanation and the lines of its examples.
fn split(long: &str) -> (String, Vec<&str>) {
    match long.split_once(EXAMPLES) {
        Some((description, examples)) => {
            let lines = examples.lines().filter(|line| !line.trim().is_empty()).collect();
            (description.trim_end().to_owned(), lines)
        }
        None => (long.to_owned(), Vec::new()),
    }
}

/// Prints paragraphs. Indented lines are a table or input to type, and stay unchanged.
fn paragraphs(roff: &mut Roff, text: &str) {
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        if paragraph.lines().any(|line| line.starts_with("  ")) {
            page::verbatim(roff, paragraph.lines());
        } else {
            let words: Vec<&str> = paragraph.split_whitespace().collect();
            roff.control("PP", []);
            roff.text(page::inlines(&words.join(" ")));
        }
    }
}

fn below(roff: &mut Roff, command: &Command, name: &str) {
    let mut commands: Vec<&Command> = commands_of(command).collect();
    if commands.is_empty() {
        return;
    }
    commands.sort_by_key(|below| below.get_name());
    roff.control("SH", ["COMMANDS"]);
    for below in commands {
        let about = below.get_about().map(ToString::to_string).unwrap_or_default();
        page::tagged(roff, &format!("{name}-{}({COMMANDS})", below.get_name()), &about);
    }
}

fn table<'a>(roff: &mut Roff, title: &str, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    for (number, (word, about)) in rows.enumerate() {
        if number == 0 {
            roff.control("SH", [title]);
        }
        page::tagged(roff, word, about);
    }
}

fn see_also(roff: &mut Roff, words: &str) {
    roff.control("SH", ["SEE ALSO"]);
    let first = words.split(' ').next().unwrap_or_default();
    let mut pages_of = vec!["creamery(1)".to_owned(), "creamery(5)".to_owned()];
    pages_of.retain(|page| !words.is_empty() || page != "creamery(1)");
    let group = group_of(first).iter().filter(|other| **other != words);
    pages_of.extend(group.map(|other| format!("creamery-{other}({COMMANDS})")));
    pages_of.extend(sections::others(words).map(str::to_owned));
    roff.text([roman(pages_of.join(", "))]);
    let page = pages::names().find(|page| *page == first || page.strip_suffix('s') == Some(first));
    if let Some(page) = page {
        roff.control("PP", []);
        roff.text(page::inlines(&format!(
            "`creamery help {page}` is the page about it, also in /usr/share/doc/creamery."
        )));
    }
}
