//! The words of an expression of find(1).

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use creamery::Permissions;
use creamery::attributes::Timespec;
use creamery::attributes::{ModeChange, Owner};
use creamery::{Error, FileType, Filesystem};
use creamery_tools::find::{Comparison, FileTest, ModeTest};
use creamery_tools::glob::Glob;

use crate::failure::Failure;

/// Limit of nested parentheses and negations.
const NESTING_MAX: usize = 100;

/// The parsed expression.
pub(super) struct Question {
    pub(super) test: FileTest,
    pub(super) depth_min: usize,
    pub(super) depth_max: usize,
    /// Whether a zero byte ends each path.
    pub(super) zero: bool,
    pub(super) json: bool,
}

/// The filesystem that the words may refer to, and a function that turns its errors into failures.
pub(super) type FindContext<'a> = Option<(&'a Filesystem, &'a dyn Fn(Error) -> Failure)>;

/// Parses all of `words`. Without a filesystem the names and files in them are not looked up.
pub(super) fn read(words: &[OsString], asked: FindContext<'_>) -> Result<Question, Failure> {
    let question =
        Question { test: FileTest::True, depth_min: 0, depth_max: usize::MAX, zero: false, json: false };
    let mut reader = Reader { words, asked, question, nesting: 0 };
    if !words.is_empty() {
        let Term { holds, prints } = reader.either()?;
        // Without `-print` every file for which the expression holds is printed.
        reader.question.test = prints.unwrap_or(holds);
    }
    match reader.words.first() {
        None => Ok(reader.question),
        Some(_) => Err(usage("')' without a matching '('")),
    }
}

/// A part of the expression.
struct Term {
    /// The test of the part.
    holds: FileTest,
    /// The condition under which a `-print` in the part runs; `None` without one.
    prints: Option<FileTest>,
}

impl Term {
    /// Combines terms with short-circuit evaluation: the next term is evaluated if the terms before it hold, or if none of them does. The
    /// last one decides.
    fn in_turn(
        terms: Vec<Self>,
        join: fn(Vec<FileTest>) -> FileTest,
        goes_on: fn(FileTest) -> FileTest,
    ) -> Self {
        let (mut before, mut holds, mut prints) = (Vec::new(), Vec::new(), Vec::new());
        for term in terms {
            if let Some(own) = term.prints {
                prints.push(FileTest::And([&before[..], &[own]].concat()));
            }
            before.push(goes_on(term.holds.clone()));
            holds.push(term.holds);
        }
        let holds = if holds.len() == 1 { holds.remove(0) } else { join(holds) };
        Self { holds, prints: (!prints.is_empty()).then_some(FileTest::Or(prints)) }
    }
}

impl From<FileTest> for Term {
    fn from(holds: FileTest) -> Self {
        Self { holds, prints: None }
    }
}

struct Reader<'a> {
    words: &'a [OsString],
    asked: FindContext<'a>,
    question: Question,
    nesting: usize,
}

fn usage(what: impl AsRef<str>) -> Failure {
    Failure::usage("find", what.as_ref())
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a OsString> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }

    fn next_is(&mut self, names: &[&str]) -> bool {
        let is_one = self.words.first().is_some_and(|word| names.iter().any(|name| word == name));
        if is_one {
            self.words = &self.words[1..];
        }
        is_one
    }

    /// The argument of `test`.
    fn value(&mut self, test: &str) -> Result<&'a OsString, Failure> {
        self.next().ok_or_else(|| usage(format!("{test} requires an argument")))
    }

    fn text(&mut self, test: &str) -> Result<&'a str, Failure> {
        let word = self.value(test)?;
        word.to_str().ok_or_else(|| usage(format!("{test} {}: expected UTF-8", word.display())))
    }

    /// Parses tests with `-o` between them.
    fn either(&mut self) -> Result<Term, Failure> {
        let mut all = vec![self.both()?];
        while self.next_is(&["-o", "-or"]) {
            all.push(self.both()?);
        }
        Ok(Term::in_turn(all, FileTest::Or, |test| FileTest::Not(Box::new(test))))
    }

    /// Parses tests that all have to hold.
    fn both(&mut self) -> Result<Term, Failure> {
        let mut all = vec![self.one()?];
        loop {
            let joined = self.next_is(&["-a", "-and"]);
            let ends = self.words.first().is_none_or(|word| word == ")" || word == "-o" || word == "-or");
            if ends && !joined {
                return Ok(Term::in_turn(all, FileTest::And, |test| test));
            }
            all.push(self.one()?);
        }
    }

    fn one(&mut self) -> Result<Term, Failure> {
        let Some(word) = self.next() else { return Err(usage("expected a test at the end")) };
        let name = word.to_str().unwrap_or_default();
        if matches!(name, "!" | "-not" | "(") {
            self.nesting += 1;
            if self.nesting > NESTING_MAX {
                return Err(usage("expression is nested too deeply"));
            }
            let term = if name == "(" { self.either() } else { self.one() }?;
            self.nesting -= 1;
            if name != "(" {
                return Ok(Term { holds: FileTest::Not(Box::new(term.holds)), ..term });
            }
            return if self.next_is(&[")"]) { Ok(term) } else { Err(usage("'(' without a matching ')'")) };
        }
        match name {
            "-maxdepth" => self.question.depth_max = self.depth(name)?,
            "-mindepth" => self.question.depth_min = self.depth(name)?,
            "--json" => self.question.json = true,
            "-true" => {}
            "-print" | "-print0" => {
                self.question.zero |= name == "-print0";
                return Ok(Term { holds: FileTest::True, prints: Some(FileTest::True) });
            }
            _ => return self.test(name, word).map(Term::from),
        }
        Ok(FileTest::True.into())
    }

    fn test(&mut self, name: &str, word: &OsString) -> Result<FileTest, Failure> {
        Ok(match name {
            "-name" => FileTest::Name { pattern: Glob::new(self.value(name)?.as_bytes()), fold_case: false },
            "-iname" => {
                let pattern = Glob::new(&self.value(name)?.as_bytes().to_ascii_lowercase());
                FileTest::Name { pattern, fold_case: true }
            }
            "-path" | "-wholename" => FileTest::Path(Glob::new(self.value(name)?.as_bytes())),
            "-type" => FileTest::Type(self.types(name)?),
            "-size" => self.size(name)?,
            "-perm" => FileTest::Mode(self.mode(name)?),
            "-uid" => FileTest::Uid(self.number(name)?),
            "-gid" => FileTest::Gid(self.number(name)?),
            "-links" => FileTest::Links(self.number(name)?),
            "-user" | "-group" => self.owner(name)?,
            "-newer" => FileTest::Newer(self.time(name)?),
            "-empty" => FileTest::Empty,
            _ if name.starts_with('-') => return Err(usage(format!("unknown test '{name}'"))),
            _ => return Err(usage(format!("expected a test, found '{}'; paths come first", word.display()))),
        })
    }

    fn depth(&mut self, name: &str) -> Result<usize, Failure> {
        let text = self.text(name)?;
        text.parse().map_err(|_| usage(format!("{name} {text}: expected a number of levels")))
    }

    fn number(&mut self, name: &str) -> Result<Comparison, Failure> {
        let text = self.text(name)?;
        comparison(text).ok_or_else(|| usage(format!("{name} {text}: expected N, +N or -N")))
    }

    fn types(&mut self, name: &str) -> Result<Vec<FileType>, Failure> {
        let text = self.text(name)?;
        let of_letter = |letter: &str| {
            Some(match letter {
                "f" => FileType::File,
                "d" => FileType::Directory,
                "l" => FileType::Symlink,
                "p" => FileType::Fifo,
                "s" => FileType::Socket,
                "c" => FileType::CharDevice,
                "b" => FileType::BlockDevice,
                _ => return None,
            })
        };
        let types: Option<Vec<FileType>> = text.split(',').map(of_letter).collect();
        types.ok_or_else(|| usage(format!("{name} {text}: expected letters of f, d, l, p, s, c, b")))
    }

    fn size(&mut self, name: &str) -> Result<FileTest, Failure> {
        let text = self.text(name)?;
        let (number, unit) = match text.as_bytes().last() {
            Some(b'c') => (&text[..text.len() - 1], 1),
            Some(b'w') => (&text[..text.len() - 1], 2),
            Some(b'b') => (&text[..text.len() - 1], 512),
            Some(b'k') => (&text[..text.len() - 1], 1 << 10),
            Some(b'M') => (&text[..text.len() - 1], 1 << 20),
            Some(b'G') => (&text[..text.len() - 1], 1 << 30),
            _ => (text, 512),
        };
        let count = comparison(number);
        let count = count.ok_or_else(|| usage(format!("{name} {text}: expected [+-]N[cwbkMG]")))?;
        Ok(FileTest::Size { unit, count })
    }

    fn mode(&mut self, name: &str) -> Result<ModeTest, Failure> {
        let text = self.text(name)?;
        let (make, mode): (fn(u32) -> ModeTest, &str) = match text.as_bytes().first() {
            Some(b'-') => (ModeTest::All, &text[1..]),
            Some(b'/') => (ModeTest::Any, &text[1..]),
            _ => (ModeTest::Exactly, text),
        };
        let change: ModeChange =
            mode.parse().map_err(|error: Error| usage(format!("{name} {text}: {}", error.without_kind())))?;
        // The bits that the mode gives to a file without permissions.
        Ok(make(change.apply(Permissions::from_mode(0), FileType::File, 0).mode()))
    }

    fn owner(&mut self, name: &str) -> Result<FileTest, Failure> {
        let text = self.text(name)?;
        if text.is_empty() || text.contains(':') {
            return Err(usage(format!("{name} '{text}': expected one name or number")));
        }
        let Some((fs, failed)) = self.asked else { return Ok(FileTest::True) };
        let is_user = name == "-user";
        let spelled = if is_user { text.to_owned() } else { format!(":{text}") };
        let owner = Owner::parse(&spelled, fs).map_err(|error| failed(error).advise("use a numeric ID"))?;
        let test =
            if is_user { owner.uid.map(|uid| FileTest::Uid(Comparison::Exactly(uid.into()))) } else { None };
        let group = owner.gid.map(|gid| FileTest::Gid(Comparison::Exactly(gid.into())));
        Ok(test.or(group).expect("one of both was named"))
    }

    fn time(&mut self, name: &str) -> Result<Timespec, Failure> {
        let path = self.value(name)?;
        let Some((fs, failed)) = self.asked else { return Ok(Timespec::default()) };
        Ok(fs.metadata(Path::new(path)).map_err(failed)?.mtime())
    }
}

fn comparison(text: &str) -> Option<Comparison> {
    let (make, number): (fn(u64) -> Comparison, &str) = match text.as_bytes().first()? {
        b'+' => (Comparison::MoreThan, &text[1..]),
        b'-' => (Comparison::LessThan, &text[1..]),
        _ => (Comparison::Exactly, text),
    };
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?.map(make)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_of(text: &str) -> Result<FileTest, Failure> {
        let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        read(&words, None).map(|question| question.test)
    }

    #[test]
    fn words_bind_as_in_find() {
        use FileTest::{And, Empty, Links, Not, Or};
        let links = |n| Links(Comparison::Exactly(n));
        for (text, test) in [
            ("-empty", Empty),
            ("-links 1 -links 2", And(vec![links(1), links(2)])),
            ("-links 1 -a -links 2 -o -empty", Or(vec![And(vec![links(1), links(2)]), Empty])),
            ("! -empty -links 1", And(vec![Not(Box::new(Empty)), links(1)])),
            ("-links 1 ( -links 2 -o -empty )", And(vec![links(1), Or(vec![links(2), Empty])])),
        ] {
            assert_eq!(test_of(text).ok().expect(text), test, "{text}");
        }
    }

    #[test]
    fn what_is_no_question_is_refused() {
        for text in
            ["-name", "-empty )", "( -empty", "-o -empty", "-empty -o", "-type x", "-size 1x", "-exec x", "x"]
        {
            assert!(test_of(text).is_err(), "{text}");
        }
        assert!(test_of(&"! ".repeat(10_000)).is_err());
    }
}
