//! The manual: creamery(1), a page for each command, and creamery(5) for mount options and paths.
//!
//! Everything comes from the command line and the pages of `docs/use`. Exit statuses, files and variables, which neither has, stand in
//! [`sections`].

mod command;
mod format;
mod names;
mod page;
mod sections;

use std::fs;
use std::path::Path;

use clap::Command;
use creamery::Error;

use crate::help::pages;
use names::{COMMANDS, FORMS, commands_of};

/// The pages of the documentation for creamery(5).
const FORMS_PAGES: [&str; 2] = ["paths", "mount-options"];

/// Writes all pages into a directory that exists. Errors: a page cannot be written.
pub(crate) fn write(mut program: Command, dir: &Path) -> Result<(), Error> {
    program.build();
    for (name, page) in all(&program)? {
        fs::write(dir.join(name), page)?;
    }
    Ok(())
}

/// The content of all pages, by file name.
fn all(program: &Command) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut pages = vec![(format!("creamery.{FORMS}"), format::render(&FORMS_PAGES.map(of_documentation))?)];
    let mut waiting = vec![(program, vec![program.get_name()])];
    while let Some((command, words)) = waiting.pop() {
        pages.push((format!("{}.{COMMANDS}", words.join("-")), command::render(command, &words)?));
        waiting.extend(commands_of(command).map(|below| (below, [&words[..], &[below.get_name()]].concat())));
    }
    Ok(pages)
}

fn of_documentation(name: &str) -> &'static str {
    pages::page(name).expect("the build script packed it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> Vec<(String, String)> {
        let mut program = crate::program();
        program.build();
        let pages = all(&program).expect("there is memory").into_iter();
        pages.map(|(name, page)| (name, String::from_utf8(page).expect("text"))).collect()
    }

    #[test]
    fn each_command_has_a_page_with_all_sections() {
        let pages = pages();
        let titles = pages.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        for name in
            ["creamery.1", "creamery.5", "creamery-help.1", "creamery-subvolume-list.1", "creamery-mkfs.1"]
        {
            assert!(titles.contains(&name), "{name} is missing in {titles:?}");
        }
        assert!(!titles.contains(&"creamery-subvolume-help.1"));
        for (name, page) in pages.iter().filter(|(name, _)| name.ends_with(".1")) {
            for section in
                ["NAME", "SYNOPSIS", "DESCRIPTION", "\"EXIT STATUS\"", "ENVIRONMENT", "\"SEE ALSO\""]
            {
                assert!(page.contains(&format!(".SH {section}\n")), "{name} has no {section}:\n{page}");
            }
        }
    }

    #[test]
    fn options_have_their_values_in_the_synopsis() {
        let pages = pages();
        let synopsis = |name: &str| {
            let (_, page) = pages.iter().find(|(found, _)| found == name).expect(name);
            let (_, behind) = page.split_once(".SH SYNOPSIS\n").expect("a synopsis");
            let line = behind.lines().next().expect("a line");
            ["\\fB", "\\fI", "\\fR", "\\"].iter().fold(line.to_owned(), |line, mark| line.replace(mark, ""))
        };
        let mount = synopsis("creamery-mount.1");
        assert!(mount.contains("[-o OPTIONS]...") && mount.ends_with("IMAGE DIR"), "{mount}");
        let cp = synopsis("creamery-cp.1");
        assert!(cp.contains("[--reflink[=WHEN]]") && cp.ends_with("<SOURCE>... <DEST>"), "{cp}");
        assert!(synopsis("creamery-rescue.1").ends_with("COMMAND ..."));
    }

    #[test]
    fn examples_and_tables_come_along() {
        let pages = pages();
        let page = |name: &str| &pages.iter().find(|(found, _)| found == name).expect(name).1;
        assert!(page("creamery-cp.1").contains(".SH EXAMPLES\n"));
        assert!(page("creamery-diff.1").contains("There are differences."));
        let forms = page("creamery.5");
        assert!(
            forms.contains(".SH \"MOUNT OPTIONS\"") && forms.contains(".SS \"Where paths begin\""),
            "{forms}"
        );
        assert!(forms.contains("commit=SECONDS"));
    }
}
