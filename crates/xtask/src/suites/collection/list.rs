//! The content of `docs/coverage/suite-btrfs-progs.toml`, and its comparison with verdicts.
//!
//! ```toml
//! broken = ["fsck-tests/001-bad-file-extent-bytenr/default_case.img"]  # what the authors want their check to say
//! clean = ["fsck-tests/029-valid-orphan-item/orphan_inode.img.xz"]
//! foreign = ["convert-tests/020-refuse-needs-recovery/ext4.raw.xz"]    # no Btrfs filesystem at all
//! [theirs_differs]    # the installed btrfs check says otherwise than its authors want
//! "case" = "why"
//! [ours_differs]      # ours does
//! "case" = "why"
//! [shown_differs]     # Linux shows something else of it than we do
//! "case" = "why"
//! [without_image]     # tests that make their filesystems themselves
//! "fsck-tests/013-extent-tree-rebuild" = "why it is not run"
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use super::shown::Shown;
use creamery_workspace::read;

const FILE: &str = "docs/coverage/suite-btrfs-progs.toml";

/// The verdict of a program on an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Clean,
    Broken,
    /// The program could not open the image, so it did not judge the content.
    Refused,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clean => "clean",
            Self::Broken => "broken",
            Self::Refused => "refused",
        })
    }
}

/// The verdicts of both programs on an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Opinions {
    pub(super) theirs: Verdict,
    pub(super) ours: Verdict,
}

/// The expected state of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WantedState {
    Clean,
    Broken,
    Foreign,
}

impl WantedState {
    /// The expected verdicts of `btrfs check` and of ours. `btrfs check` fails on an image without a filesystem, as on a broken one.
    const fn opinions(self) -> Opinions {
        match self {
            Self::Clean => Opinions { theirs: Verdict::Clean, ours: Verdict::Clean },
            Self::Broken => Opinions { theirs: Verdict::Broken, ours: Verdict::Broken },
            Self::Foreign => Opinions { theirs: Verdict::Broken, ours: Verdict::Refused },
        }
    }
}

/// The list.
#[derive(Debug, Default)]
pub(super) struct List {
    wanted: BTreeMap<String, WantedState>,
    theirs_differs: BTreeMap<String, String>,
    ours_differs: BTreeMap<String, String>,
    shown_differs: BTreeMap<String, String>,
    without_image: BTreeMap<String, String>,
}

impl List {
    /// The outcome of a case that is to show the same as on Linux. A listed difference that is gone is an error, too.
    pub(super) fn without_known_difference(
        &self,
        case: &str,
        shown: Result<Shown, Vec<String>>,
    ) -> Result<Shown, Vec<String>> {
        match (self.shown_differs.get(case), shown) {
            (Some(_), Err(_)) => Ok(Shown::NotByLinux),
            (Some(why), Ok(_)) => Err(vec![format!("it shows what Linux does, although \"{why}\"")]),
            (None, shown) => shown,
        }
    }

    pub(super) fn read() -> Result<Self> {
        Self::parse(&read(FILE)?).context(FILE)
    }

    fn parse(text: &str) -> Result<Self> {
        let table: Table = text.parse()?;
        let mut wanted = BTreeMap::new();
        for (name, kind) in [
            ("clean", WantedState::Clean),
            ("broken", WantedState::Broken),
            ("foreign", WantedState::Foreign),
        ] {
            let cases = table.get(name).and_then(Value::as_array);
            for case in cases.with_context(|| format!("no list \"{name}\""))? {
                let case = case.as_str().with_context(|| format!("{name}: not a text"))?;
                let before = wanted.insert(case.to_owned(), kind);
                ensure!(before.is_none(), "{case} stands there twice");
            }
        }
        let pairs = |name: &str| -> Result<BTreeMap<String, String>> {
            let empty = Table::new();
            let pairs = table.get(name).and_then(Value::as_table).unwrap_or(&empty);
            let text = |(case, value): (&String, &Value)| {
                let value = value.as_str().filter(|value| !value.is_empty());
                Ok((case.clone(), value.with_context(|| format!("{name}: {case} has no text"))?.to_owned()))
            };
            pairs.iter().map(text).collect()
        };
        Ok(Self {
            wanted,
            theirs_differs: pairs("theirs_differs")?,
            ours_differs: pairs("ours_differs")?,
            shown_differs: pairs("shown_differs")?,
            without_image: pairs("without_image")?,
        })
    }

    /// Compares verdicts with the list. Errors: all differences, and `broke`, which no reader may do on any image. If `all` cases ran, a
    /// listed case that the checkout lacks is an error, too.
    pub(super) fn hold_against(
        &self,
        seen: &BTreeMap<String, Opinions>,
        all: bool,
        broke: Vec<String>,
    ) -> Result<()> {
        let mut surprises = broke;
        let mut counts = [0_usize; 3];
        for (case, opinions) in seen {
            let Some(wanted) = self.wanted.get(case).map(|wanted| wanted.opinions()) else {
                surprises.push(format!("{case} is not in the list; btrfs check says {}", opinions.theirs));
                continue;
            };
            // A later btrfs check may judge the case correctly.
            if opinions.theirs != wanted.theirs && !self.theirs_differs.contains_key(case) {
                surprises.push(format!("{case}: btrfs check says {}", opinions.theirs));
            }
            match (opinions.ours == wanted.ours, self.ours_differs.get(case)) {
                (true, None) => counts[0] += 1,
                (false, Some(_)) => counts[1] += 1,
                (true, Some(why)) => surprises.push(format!("{case} is as wanted, although \"{why}\"")),
                (false, None) => {
                    surprises.push(format!("{case}: found {}, want {}", opinions.ours, wanted.ours));
                }
            }
            counts[2] += usize::from(opinions.theirs != wanted.theirs);
        }
        let [same, other, theirs] = counts;
        println!(
            "collection: {} images; {same} verdicts are the authors', {other} are others for reasons in {FILE}",
            seen.len()
        );
        println!("the installed btrfs check has another verdict than its authors for {theirs}");
        if all {
            let known: BTreeSet<&String> = seen.keys().collect();
            for case in self.wanted.keys().filter(|case| !known.contains(case)) {
                println!("not in this checkout: {case}");
            }
            println!("{} tests without images are not run: {FILE} says why", self.without_image.len());
        }
        ensure!(surprises.is_empty(), "not as expected:\n{}", surprises.join("\n"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{List, Opinions, Verdict};

    fn hold(seen: &[(&str, Verdict, Verdict)]) -> Result<(), String> {
        let text = "broken = [\"a\", \"b\"]\nclean = [\"c\"]\nforeign = [\"f\"]\n\
                    [ours_differs]\nb = \"why\"\n[theirs_differs]\nb = \"why\"\n";
        let seen: BTreeMap<String, Opinions> =
            seen.iter().map(|&(case, theirs, ours)| (case.to_owned(), Opinions { theirs, ours })).collect();
        let list = List::parse(text).unwrap();
        list.hold_against(&seen, true, Vec::new()).map_err(|error| error.to_string())
    }

    #[test]
    fn surprises_of_all_kinds_are_told() {
        use Verdict::{Broken, Clean, Refused};
        hold(&[("a", Broken, Broken), ("b", Clean, Clean), ("c", Clean, Clean), ("f", Broken, Refused)])
            .unwrap();
        hold(&[("b", Broken, Refused)]).unwrap();
        for (seen, wanted) in [
            (("a", Broken, Clean), "a: found clean, want broken"),
            (("a", Broken, Refused), "a: found refused, want broken"),
            (("a", Clean, Broken), "a: btrfs check says clean"),
            (("b", Clean, Broken), "although"),
            (("c", Clean, Broken), "c: found broken, want clean"),
            (("f", Broken, Broken), "f: found broken, want refused"),
            (("z", Broken, Broken), "z is not in the list"),
        ] {
            let said = hold(&[seen]).unwrap_err();
            assert!(said.contains(wanted), "{seen:?}: {said}");
        }
    }

    #[test]
    fn a_case_has_one_verdict_and_a_difference_a_reason() {
        assert!(List::parse("broken = [\"a\"]\nclean = [\"a\"]\nforeign = []\n").is_err());
        assert!(List::parse("broken = []\nclean = []\nforeign = []\n[ours_differs]\na = \"\"\n").is_err());
    }
}
