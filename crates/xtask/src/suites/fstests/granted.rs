//! A copy of fstests that lets our type do what Btrfs may.
//!
//! fstests decides much by a filesystem's type: how one of a given size is made, which names and times it takes. Of a type
//! whose name it does not know it expects nothing, and the test is not run, or shows less than it could. So what runs on the
//! mount is a folder of links into the checkout, in which some functions take our name for that of Btrfs. Which ones stands
//! in `docs/coverage/suite-fstests.toml`. The checkout stays as it is.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

use crate::suites::mount_helpers::KIND;

/// Functions by file, relative to the checkout.
pub(crate) type Granted = BTreeMap<String, Vec<String>>;

/// Makes the copy `to` of `checkout`.
pub(super) fn link_granted(checkout: &Path, to: &Path, granted: &Granted) -> Result<()> {
    let mut texts = BTreeMap::new();
    for (file, functions) in granted {
        let path = checkout.join(file);
        let mut text =
            std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        for function in functions {
            text = grant(&text, function).with_context(|| {
                format!("{file} of this fstests has no function {function} that knows Btrfs")
            })?;
        }
        texts.insert(Path::new(file), text);
    }
    link(checkout, to, Path::new(""), &texts)
}

/// Links what lies in the folder `at` of `from`; a folder with a text of ours in it is a folder of its own.
fn link(from: &Path, to: &Path, at: &Path, texts: &BTreeMap<&Path, String>) -> Result<()> {
    std::fs::create_dir(to.join(at)).with_context(|| format!("making {}", to.join(at).display()))?;
    for entry in std::fs::read_dir(from.join(at))? {
        let entry = entry?;
        let at = at.join(entry.file_name());
        match texts.get(&*at) {
            Some(text) => {
                std::fs::write(to.join(&at), text)?;
                std::fs::set_permissions(to.join(&at), entry.metadata()?.permissions())?;
            }
            None if texts.keys().any(|file| file.starts_with(&at)) => link(from, to, &at, texts)?,
            None => symlink(entry.path(), to.join(&at))?,
        }
    }
    Ok(())
}

/// `text` of a shell script, whose `function` treats our type as Btrfs in every `case`; none when it does not speak of Btrfs.
fn grant(text: &str, function: &str) -> Option<String> {
    let head = format!("{function}()");
    let (mut inside, mut known) = (false, false);
    let mut granted = String::with_capacity(text.len() + 64);
    for line in text.lines() {
        inside |= line.starts_with(&head);
        let label = line.trim_start();
        if inside && is_label_of_btrfs(label) {
            granted.push_str(&line[..line.len() - label.len()]);
            granted.push_str(KIND);
            granted.push('|');
            granted.push_str(label);
            known = true;
        } else {
            granted.push_str(line);
        }
        granted.push('\n');
        inside &= line != "}";
    }
    known.then_some(granted)
}

/// `btrfs)`, also quoted, or among others.
fn is_label_of_btrfs(line: &str) -> bool {
    let Some(names) = line.strip_suffix(')') else { return false };
    names.split('|').any(|name| name.trim_matches('"') == "btrfs")
}

#[cfg(test)]
mod tests {
    use creamery_testkit::Scratch;

    use super::{Granted, grant, link_granted};

    const SCRIPT: &str = "_other()\n{\n\tcase $X in\n\tbtrfs)\n\t\t;;\n\tesac\n}\n\
        _wanted()\n{\n\tcase $X in\n\text4|btrfs|xfs)\n\t\techo btrfs)\n\t\t;;\n\t\"btrfs\")\n\t\t;;\n\tesac\n}\n\
        _wanted_too()\n{\n\tcase $X in\n\tbtrfs)\n\t\t;;\n\tesac\n}\n_blind()\n{\n\techo\n}\n";

    #[test]
    fn only_labels_of_the_function_are_changed() {
        let granted = grant(SCRIPT, "_wanted").unwrap();
        let expected = SCRIPT
            .replace("\text4|btrfs|xfs)", "\tfuse.creamery|ext4|btrfs|xfs)")
            .replace("\t\"btrfs\")", "\tfuse.creamery|\"btrfs\")");
        assert_eq!(granted, expected);
        assert_eq!(grant(SCRIPT, "_blind"), None);
        assert_eq!(grant(SCRIPT, "_missing"), None);
    }

    #[test]
    fn the_checkout_stays_and_its_copy_is_granted() {
        let scratch = Scratch::new("granted").unwrap();
        let (from, to) = (scratch.dir("from").unwrap(), scratch.path().join("to"));
        std::fs::create_dir_all(from.join("common/deep")).unwrap();
        for (file, text) in [("check", "x"), ("common/rc", SCRIPT), ("common/deep/other", "y")] {
            std::fs::write(from.join(file), text).unwrap();
        }
        let granted: Granted =
            [("common/rc".to_owned(), vec!["_wanted".to_owned(), "_other".to_owned()])].into();
        link_granted(&from, &to, &granted).unwrap();
        let read = |path: &str| std::fs::read_to_string(scratch.path().join(path)).unwrap();
        assert_eq!(read("to/common/rc").matches("fuse.creamery").count(), 3);
        assert_eq!((&*read("to/check"), &*read("to/common/deep/other")), ("x", "y"));
        assert_eq!(read("from/common/rc"), SCRIPT);
        assert!(to.join("check").is_symlink() && to.join("common/deep").is_symlink());

        let missing: Granted = [("common/rc".to_owned(), vec!["_blind".to_owned()])].into();
        let error = link_granted(&from, &scratch.path().join("again"), &missing).unwrap_err();
        assert!(error.to_string().contains("no function _blind"), "{error:#}");
    }
}
