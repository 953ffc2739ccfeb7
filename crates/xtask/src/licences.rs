//! The licences of everything that is linked, and where it comes from: `cargo metadata` against `deny.toml`. cargo-deny reads the same
//! file and does more, but is a large program to build for one rule.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use toml::Table;

use crate::workspace::{metadata, read};

const FILE: &str = "deny.toml";
/// How `cargo metadata` names crates.io, the one registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Fails on licences that we cannot pass on, and on crates from elsewhere.
pub(crate) fn check() -> Result<()> {
    let rules = rules(&read(FILE)?).with_context(|| format!("reading {FILE}"))?;
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().context("packages in cargo metadata")?;
    let bad: Vec<String> = packages.iter().filter_map(|package| complaint(package, &rules)).collect();
    if !bad.is_empty() {
        bail!("not as {FILE} wants it:\n  {}", bad.join("\n  "));
    }
    println!("{} packages, all under licences we can pass on, and from where they may come", packages.len());
    Ok(())
}

/// The licences that are allowed. That nothing comes from elsewhere is no choice: the file must say it, too.
fn rules(text: &str) -> Result<Vec<String>> {
    let table: Table = text.parse()?;
    let sources = table.get("sources").and_then(|value| value.as_table()).context("sources")?;
    for key in ["unknown-registry", "unknown-git"] {
        let said = sources.get(key).and_then(|value| value.as_str());
        ensure!(said == Some("deny"), "{key} is {said:?}, and here it is checked as \"deny\"");
    }
    let allowed =
        table.get("licenses").and_then(|value| value.get("allow")).and_then(|value| value.as_array());
    let allowed = allowed.context("the licences that are allowed")?.iter();
    allowed.map(|name| Ok(name.as_str().context("a licence is no word")?.to_owned())).collect()
}

fn complaint(package: &Value, allowed: &[String]) -> Option<String> {
    let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
    if let Some(source) = package["source"].as_str().filter(|source| *source != REGISTRY) {
        return Some(format!("{name}: it comes from {source}"));
    }
    let Some(licence) = package["license"].as_str() else { return Some(format!("{name}: no licence named")) };
    match allows(licence, allowed) {
        Ok(true) => None,
        Ok(false) => Some(format!("{name}: {licence}")),
        Err(error) => Some(format!("{name}: {licence}: {error}")),
    }
}

/// Whether an SPDX expression can be met with the allowed licences alone. The old form with `/` means OR.
fn allows(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().collect::<Vec<_>>();
    words.reverse();
    let result = either(&mut words, allowed)?;
    if let Some(rest) = words.pop() {
        bail!("unexpected {rest:?}");
    }
    Ok(result)
}

fn either(words: &mut Vec<&str>, allowed: &[String]) -> Result<bool> {
    let mut result = both(words, allowed)?;
    while words.last() == Some(&"OR") {
        words.pop();
        result |= both(words, allowed)?;
    }
    Ok(result)
}

fn both(words: &mut Vec<&str>, allowed: &[String]) -> Result<bool> {
    let mut result = one(words, allowed)?;
    while words.last() == Some(&"AND") {
        words.pop();
        result &= one(words, allowed)?;
    }
    Ok(result)
}

fn one(words: &mut Vec<&str>, allowed: &[String]) -> Result<bool> {
    match words.pop().context("the expression ends early")? {
        "(" => {
            let result = either(words, allowed)?;
            if words.pop() != Some(")") {
                bail!("a parenthesis is not closed");
            }
            Ok(result)
        }
        name if words.last() == Some(&"WITH") => {
            words.pop();
            let exception = words.pop().context("WITH what")?;
            Ok(allowed.contains(&format!("{name} WITH {exception}")))
        }
        name => Ok(allowed.iter().any(|have| have == name)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{allows, complaint, rules};

    const RULES: &str = "[licenses]\nallow = [\"MIT\", \"Apache-2.0\", \"Apache-2.0 WITH LLVM-exception\", \"Unicode-3.0\"]\n\
        [sources]\nunknown-registry = \"deny\"\nunknown-git = \"deny\"\n";

    #[test]
    fn expressions_are_weighed() {
        let allowed = rules(RULES).unwrap();
        for (expression, wanted) in [
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("GPL-2.0-only", false),
            ("GPL-2.0-only OR MIT", true),
            ("GPL-2.0-only AND MIT", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("GPL-2.0 WITH Classpath-exception", false),
            ("Apache-2.0 AND (GPL-3.0 OR LGPL-3.0)", false),
        ] {
            assert_eq!(allows(expression, &allowed).unwrap(), wanted, "{expression}");
        }
        for torn in ["MIT OR", "(MIT", "MIT MIT"] {
            assert!(allows(torn, &allowed).is_err(), "{torn}");
        }
    }

    #[test]
    fn crates_come_from_the_registry_or_lie_here() {
        let allowed = rules(RULES).unwrap();
        let told = |source: Option<&str>| {
            let package = json!({"name": "a", "version": "1.0.0", "license": "MIT", "source": source});
            complaint(&package, &allowed)
        };
        assert_eq!(told(None), None);
        assert_eq!(told(Some(super::REGISTRY)), None);
        assert!(told(Some("git+https://git.example/a")).is_some_and(|told| told.contains("git.example")));
    }

    #[test]
    fn rules_that_would_not_be_held_are_refused() {
        assert!(rules(&RULES.replace("git = \"deny\"", "git = \"allow\"")).is_err());
        assert!(rules("[licenses]\nallow = []\n").is_err());
    }
}
